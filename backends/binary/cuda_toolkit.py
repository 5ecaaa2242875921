"""Finds the CUDA toolkit that includes a compiler, and names what it compiles for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ARCH_WITHOUT_DEVICE = "sm_90"
"""The target architecture on a worker without a GPU."""
_WITH_FEATURES = frozenset({"sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"})


def with_features(arch: str) -> str:
    """The architecture with the instructions that only its own GPUs have (wgmma, tcgen05): "sm_90a" for "sm_90"."""
    return f"{arch}a" if arch in _WITH_FEATURES else arch


def cuda_home() -> Path | None:
    """The toolkit's folder, searched like torch.utils.cpp_extension does; that one skips the search in a CPU-only
    torch."""
    for home in (os.getenv("CUDA_HOME"), "/usr/local/cuda"):  # noqa: TID251 - as torch.utils.cpp_extension finds it
        if home and (Path(home) / "bin" / "nvcc").exists():
            return Path(home)
    compiler = shutil.which("nvcc")
    home_of_compiler = Path(compiler).resolve().parent.parent if compiler else None
    return home_of_compiler if home_of_compiler and (home_of_compiler / "include" / "cuda.h").exists() else None


def named_home() -> Path | None:
    """The folder that CUDA_HOME names, though it may lack a compiler: some languages look nowhere else."""
    home = os.getenv("CUDA_HOME")  # noqa: TID251 - as languages find it
    return Path(home) if home else cuda_home()
