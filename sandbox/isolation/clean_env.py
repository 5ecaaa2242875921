"""The environment that a zygote starts in, and every runner after it: where programs and libraries are, no more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from domain.paths import ROOT

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
INHERITED = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LANG", "TZ")

ALIKE_FROM_THE_START = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""For glibc, which reads them when the zygote's process starts: how large a block has pages of its own, and how much
free memory is kept. Left alone it raises both with the blocks that a process frees. A runner that draws inputs for both
sides frees large ones, and has its temporaries out of memory that it holds; the other would have them mapped anew, page
for page, in each call. Set, they stay as they are; 32 MiB is the most that glibc takes."""


def clean_environment(folder: Path, *, interpret: bool) -> dict[str, str]:
    """What is kept of the worker's, and what makes libraries behave in a runner; `folder` is for temporary files."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *_extra_paths()])
    environment |= {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # torch.cuda.is_available() would otherwise initialise CUDA in the zygote, and CUDA does not survive a fork.
        NVML_CHECK: "1",
        "CUDA_MODULE_LOADING": "LAZY",
        # In the runner itself: a pool of processes, each with a thread for every core, is more than a runner may have.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
        # One thread: on the host's few cores, threads that wait for each other measure what else the machine does.
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **ALIKE_FROM_THE_START}
    return environment


def _extra_paths() -> list[str]:
    # Libraries that were put on the path by hand (an offline install) must be there for the runner too.
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(ROOT)]
