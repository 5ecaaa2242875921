"""Reads Triton's cache in a job's folder: the compiled kernels and the resources that their machine code needs.

Any process of the submission may have written there, so entries that do not look like Triton's are skipped.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.binary.cubin import kernels
from backends.binary.occupancy import WARP, occupancy

FOLDER = "triton"
"""Name of the cache's folder in a job's folder (`sandbox.isolation.apply`)."""
MAX_NOTE_BYTES = 1 << 20
MAX_CUBIN_BYTES = 32 << 20


@dataclass(frozen=True, order=True)
class Compiled:
    """One compilation: the kernel's name, how it was compiled, its bytes of shared memory, its files' common path."""

    name: str
    num_warps: int
    num_stages: int
    shared: int
    stem: Path

    def file(self, suffix: str) -> Path:
        """The file with a suffix such as ".cubin" or ".ptx"."""
        return self.stem.with_name(f"{self.stem.name}{suffix}")


def list_compilations(folder: Path) -> list[Compiled]:
    """All compilations, ordered by name and options, because the cache names its folders by digests."""
    compilations = []
    for note in (folder / FOLDER).glob("*/*.json"):
        if note.name.startswith("__grp__") or not note.is_file():
            continue
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            with note.open(encoding="utf-8") as file:
                options = json.loads(file.read(MAX_NOTE_BYTES))
            stem = note.with_name(note.name.removesuffix(".json"))
            numbers = (int(options["num_warps"]), int(options["num_stages"]), int(options.get("shared", 0)))
            compilations.append(Compiled(stem.name, *numbers, stem))
    return sorted(compilation for compilation in compilations if compilation.file(".cubin").is_file())


def list_resources(folder: Path, arch: str | None, limit: int) -> list[dict[str, Any]]:
    """Resources of the first `limit` compilations; JSON-ready."""
    reports = []
    for compilation in list_compilations(folder)[:limit]:
        with suppress(OSError), compilation.file(".cubin").open("rb") as file:
            report = configuration_facts(
                file.read(MAX_CUBIN_BYTES), arch, compilation.num_warps, compilation.num_stages, compilation.shared
            )
            reports.append({"name": compilation.name, **report})
    return reports


def configuration_facts(cubin: Any, arch: str | None, num_warps: int, num_stages: int, shared: int) -> dict[str, Any]:
    """The options of one configuration, and the resources of its machine code where that can be read."""
    facts: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages, "shared_bytes": shared}
    try:
        (code,) = kernels(cubin)
    except (TypeError, ValueError):
        return facts
    fits = occupancy(arch, num_warps * WARP, code.registers, shared) if arch is not None else None
    held = {} if fits is None else {"occupancy": fits["theoretical"], "limited_by": fits["limited_by"]}
    return facts | {"registers": code.registers, "local_bytes": code.local_bytes} | held
