"""Triton's cache in a job's folder: which kernels were compiled, ahead or at a call, and what their machine code needs.

Any process of the submission may have written there: what does not look like Triton's is passed over.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.binary import cubin as machine_code
from backends.binary.occupancy import WARP, occupancy

FOLDER = "triton"
"""In a job's folder (`sandbox.isolation.apply`)."""
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
        """Such as ".cubin" or ".ptx"."""
        return self.stem.with_name(f"{self.stem.name}{suffix}")


def compiled(folder: Path) -> list[Compiled]:
    """All of them, by name and how they were compiled: the cache's own folders are named by digests."""
    found = []
    for note in (folder / FOLDER).glob("*/*.json"):
        if note.name.startswith("__grp__") or not note.is_file():
            continue
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            with note.open(encoding="utf-8") as file:
                told = json.loads(file.read(MAX_NOTE_BYTES))
            stem = note.with_name(note.name.removesuffix(".json"))
            numbers = (int(told["num_warps"]), int(told["num_stages"]), int(told.get("shared", 0)))
            found.append(Compiled(stem.name, *numbers, stem))
    return sorted(one for one in found if one.file(".cubin").is_file())


def needed(folder: Path, arch: str | None, most: int) -> list[dict[str, Any]]:
    """Of the first `most` of them what the machine code needs; JSON-ready."""
    found = []
    for one in compiled(folder)[:most]:
        with suppress(OSError), one.file(".cubin").open("rb") as file:
            told = needs(file.read(MAX_CUBIN_BYTES), arch, one.num_warps, one.num_stages, one.shared)
            found.append({"name": one.name, **told})
    return found


def needs(cubin: Any, arch: str | None, num_warps: int, num_stages: int, shared: int) -> dict[str, Any]:
    """One configuration's: what it was compiled with, and what its machine code needs (where that can be read)."""
    facts: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages, "shared_bytes": shared}
    try:
        (code,) = machine_code.kernels(cubin)
    except (TypeError, ValueError):
        return facts
    fits = occupancy(arch, num_warps * WARP, code.registers, shared) if arch is not None else None
    held = {} if fits is None else {"occupancy": fits["theoretical"], "limited_by": fits["limited_by"]}
    return facts | {"registers": code.registers, "local_bytes": code.local_bytes} | held
