"""Helion: it writes Triton kernels, which Triton compiles and caches."""

from __future__ import annotations

import importlib
from typing import Any

from backends.languages.language import Around, Language, Unfollowed


def pretend(arch: str, around: Around) -> None:
    """Leaves a search for a configuration to the card: times measured here would say nothing.

    Helion asks for the number of multiprocessors whatever the source is. It refuses none for a guess.
    """
    kernel = importlib.import_module("helion.runtime.kernel")
    cuda = importlib.import_module("torch").cuda  # Not at the top: processes without torch read this table.

    def search(*args: Any, **kwargs: Any) -> Any:
        raise Unfollowed("Helion searches for a configuration on the GPU: give @helion.kernel one, config=Config(...)")

    def get_num_sm(device: Any, *, reserved_sms: int = 0) -> int:
        return max(cuda.get_device_properties(device).guess("multi_processor_count") - reserved_sms, 1)

    kernel.BoundKernel.autotune = search
    importlib.import_module("helion.runtime").get_num_sm = get_num_sm


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
