"""Finds the CUDA toolkit that includes a compiler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def cuda_home() -> Path | None:
    """The toolkit's folder, searched like torch.utils.cpp_extension does; that one skips the search in a CPU-only
    torch."""
    for home in (os.getenv("CUDA_HOME"), "/usr/local/cuda"):  # noqa: TID251 - as torch.utils.cpp_extension finds it
        if home and (Path(home) / "bin" / "nvcc").exists():
            return Path(home)
    compiler = shutil.which("nvcc")
    home_of_compiler = Path(compiler).resolve().parent.parent if compiler else None
    return home_of_compiler if home_of_compiler and (home_of_compiler / "include" / "cuda.h").exists() else None
