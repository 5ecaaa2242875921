"""Describes a kernel language that lives inside Python, as far as the service has to know it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from backends.binary.cubin import kernels
from domain.listing import Form

MAX_CUBIN_BYTES = 32 << 20

Around = Callable[[str, Callable[[], Any]], Any]
"""`around(name, compile)` runs a compiler inside the dry run, and reports what it compiled."""


class Unfollowed(BaseException):
    """The dry run cannot go on; the text says why. No `except Exception` of a source catches it."""


@dataclass(frozen=True)
class CodeFiles:
    """The files of one kernel or extension: its texts, and its machine code as cubins or inside a library."""

    kernel: str
    texts: dict[Form, list[Path]] = field(default_factory=dict)
    cubins: list[Path] = field(default_factory=list)
    library: Path | None = None
    variant: str | None = None


def cubins(paths: Iterable[Path]) -> Iterator[CodeFiles]:
    """Files of machine code, each named by its kernels. A submission may have written there: others are skipped."""
    for path in sorted(paths):
        with suppress(OSError, ValueError), path.open("rb") as file:
            yield CodeFiles(", ".join(code.name for code in kernels(file.read(MAX_CUBIN_BYTES))), cubins=[path])


@dataclass(frozen=True)
class Language:
    """One language. Its kernel type runs a source as `torch` does (Gluon: as `triton`); both take such a source too."""

    name: str
    """The name of its kernel type, of its dependency group in pyproject.toml, and in the build argument LANGUAGES."""
    title: str
    module: str
    """The dotted name whose import shows the language."""
    package: str
    """The distribution on PyPI."""
    inside_triton: bool = False
    """It comes with Triton: there is no dependency group."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its caches, each with a folder below the job's. The runner gets it from the builder."""
    refusals: tuple[str, ...] = ()
    """Prefixes of the full names of the exceptions by which it refuses a source, with or without a GPU."""
    compilers: tuple[str, ...] = ()
    """Functions of its compiler, as "end of the file's path:name": any exception that leaves one is a refusal.
    In a builder it may come of the missing GPU, but for a wrong name or index."""
    compilers_without_gpu: tuple[str, ...] = ()
    """Those below them that run a compiler for a given architecture: what they refuse, they refuse with a GPU too."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Parts of the messages that it has where a compiler of its own is missing, each with what the operator does."""
    no_device: tuple[str, ...] = ()
    """Parts of the messages that it has for a machine without a GPU."""
    preloaded: bool = False
    """Whether a zygote imports it, which sees no GPU; where the import remembers that, `before_import` corrects it."""
    before_import: Callable[[], None] | None = None
    """Called before a builder or a runner imports a source: has the language find what the builder compiled, and the
    GPU that the zygote did not see."""
    pretend: Callable[[str, Around], None] | None = None
    """Has it compile for the architecture ("sm_90") of a GPU that is not there, in this process for good; None where
    Triton's driver does that."""
    codes: Callable[[Path], Iterator[CodeFiles]] | None = None
    """The code that its cache in the job's folder holds; None where that is Triton's cache."""

    def is_imported(self, source: str) -> bool:
        return self._import.search(source) is not None

    def is_missing(self, error: ImportError) -> bool:
        """Whether the exception means that the language is not installed."""
        parent, _, last = self.module.rpartition(".")
        if isinstance(error, ModuleNotFoundError):
            return f"{self.module}.".startswith(f"{error.name}.") and not _is_importable(self.module)
        return bool(parent) and isinstance(error.msg, str) and f"'{last}' from '{parent}'" in error.msg

    @cached_property
    def _import(self) -> re.Pattern[str]:
        name = re.escape(self.module)
        parent, _, last = self.module.rpartition(".")
        of_parent = rf"|from[ \t]+{re.escape(parent)}[ \t]+import\b[^\n]*\b{last}\b" if parent else ""
        return re.compile(rf"^[ \t]*(?:import\b[^\n]*[ \t,]{name}\b|from[ \t]+{name}\b{of_parent})", re.MULTILINE)


def _is_importable(module: str) -> bool:
    """Whether an import would find it, whatever a source says that it raises."""
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(module) is not None
    return False
