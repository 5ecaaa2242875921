"""The tools that look into a kernel, where this machine has them: Nsight Compute (`ncu`) and compute-sanitizer."""

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
"""Where NVIDIA's packages put it; the toolkit's own `ncu` is a script that looks here."""
ANSWER_S = 20.0


@cache
def ncu() -> Path | None:
    """Nsight Compute's command line, the newest; None where there is none."""
    packaged = sorted((path for path in PACKAGES.glob("*/ncu")), key=_version_of_folder)
    return packaged[-1] if packaged else _in_toolkit("ncu")


@cache
def compute_sanitizer() -> Path | None:
    """None where there is none."""
    return _in_toolkit("compute-sanitizer")


def folders() -> list[Path]:
    """What a runner beneath one of them has to read besides what every runner may."""
    return sorted({path.resolve().parent for path in (ncu(), compute_sanitizer()) if path is not None})


@cache
def version(tool: Path) -> str:
    """Such as "2025.3.1.0"; "unknown" where it does not say."""
    try:
        told = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=ANSWER_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", told)
    return found[1] if found else "unknown"


def _in_toolkit(name: str) -> Path | None:
    return next((path for path in _places(name) if os.access(path, os.X_OK)), None)


def _places(name: str) -> Iterator[Path]:
    if (home := cuda_home()) is not None:
        yield home / "bin" / name
    if (found := shutil.which(name)) is not None:
        yield Path(found)


def _version_of_folder(path: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", path.parent.name)]
