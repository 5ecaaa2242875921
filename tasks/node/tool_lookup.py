"""Finds the inspection tools of this machine: Nsight Compute (`ncu`) and compute-sanitizer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from backends.binary.cuda_toolkit import cuda_home

PACKAGES = Path("/opt/nvidia/nsight-compute")
"""Folder of NVIDIA's packages; the CUDA toolkit's own `ncu` is a script that searches here."""
ANSWER_S = 20.0


@cache
def ncu() -> Path | None:
    """The newest Nsight Compute command line; None without one."""
    packaged = sorted(
        PACKAGES.glob("*/ncu"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)]
    )
    return packaged[-1] if packaged else _in_toolkit("ncu")


@cache
def compute_sanitizer() -> Path | None:
    """The compute-sanitizer of the CUDA toolkit; None without one."""
    return _in_toolkit("compute-sanitizer")


def folders() -> list[Path]:
    """Folders that a runner under one of the tools may read, in addition to those of every runner."""
    return sorted({path.resolve().parent for path in (ncu(), compute_sanitizer()) if path is not None})


@cache
def version(tool: Path) -> str:
    """The tool's version, such as "2025.3.1.0"; "unknown" if it reports none."""
    try:
        output = subprocess.run(
            [tool, "--version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", output)
    return match[1] if match else "unknown"


def _in_toolkit(name: str) -> Path | None:
    return next((path for path in _candidates(name) if os.access(path, os.X_OK)), None)


def _candidates(name: str) -> Iterator[Path]:
    if (home := cuda_home()) is not None:
        yield home / "bin" / name
    if (on_path := shutil.which(name)) is not None:
        yield Path(on_path)
