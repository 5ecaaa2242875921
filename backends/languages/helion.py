"""Helion: it writes Triton kernels, which Triton compiles and caches."""

from __future__ import annotations

import importlib
from typing import Any

from backends.languages.language import Around, Language, Unfollowed


def pretend(arch: str, around: Around) -> None:
    """Leaves a search for a configuration to the card: times measured here would say nothing."""
    kernel = importlib.import_module("helion.runtime.kernel")

    def search(*args: Any, **kwargs: Any) -> Any:
        raise Unfollowed("Helion searches for a configuration on the GPU: give @helion.kernel one, config=Config(...)")

    kernel.BoundKernel.autotune = search


LANGUAGE = Language(
    name="helion",
    title="Helion",
    module="helion",
    package="helion",
    caches={"HELION_CACHE_DIR": "helion"},
    refusals=("helion.exc.",),
    preloaded=True,
    pretend=pretend,
)
