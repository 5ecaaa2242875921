"""Finds the CUDA toolkit's headers on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path


@cache
def include_folders() -> tuple[Path, ...]:
    """The folders of one complete set of headers if there is one, else all that exist, and the folder of CCCL."""
    return choose_folders(toolkit_folders())


def choose_folders(candidates: Iterable[Path]) -> tuple[Path, ...]:
    """Those folders among the candidates that `include_folders` returns; the first complete set counts."""
    toolkits = [root for root in candidates if (root / "cuda_fp16.h").is_file()]
    complete = [root for root in toolkits if (root / "crt" / "mma.h").is_file()]
    # The runtime's wheel lacks the folder `crt`; Triton's copy of the headers has it.
    chosen = complete[:1] or [*toolkits, *_triton()]
    cccl = [root / "cccl" for root in [*chosen, *toolkits] if (root / "cccl").is_dir()]
    return (*chosen, *cccl[:1])


def toolkit_folders() -> Iterator[Path]:
    """Where a toolkit's headers may lie; the wheels' first, because they match the version of the loaded NVRTC."""
    spec = importlib.util.find_spec("nvidia")
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(location).glob("cu[0-9]*/include"), reverse=True)
        yield Path(location, "cuda_runtime", "include")
    # The import is slow, and only the builder needs it.
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME:
        yield Path(CUDA_HOME, "include")
    yield Path("/usr/local/cuda/include")


def _triton() -> list[Path]:
    spec = importlib.util.find_spec("triton")
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "include" if spec and spec.origin else None
    return [folder] if folder and folder.is_dir() else []
