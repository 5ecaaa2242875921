"""What a runner is told to work on: the submission, where its files go, the device."""

from __future__ import annotations

import os
from pathlib import Path

from backends.backend import Target
from domain.kernel import Kernel
from sandbox.channel import Message


def assignment(message: Message) -> tuple[Kernel, Path, Target]:
    """The submission, and its folder: made the current one, and the place of everything that libraries keep."""
    folder = Path(message["folder"])
    os.chdir(folder)
    os.environ |= {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
    }
    given = message["target"]
    target = Target(given["device"], given["arch"], given["toolchain"])
    return Kernel.from_wire(message["kernel"]), folder, target
