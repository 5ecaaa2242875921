"""The environment of a zygote and of its runners: it says where programs and libraries are, and no more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from domain.paths import ROOT

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
INHERITED = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LANG", "TZ")

MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""Settings of glibc, read when the zygote starts: the size of a block with pages of its own, and of kept free memory.

By default glibc raises both whenever a process frees large blocks. A runner that draws inputs for both sides would then
get its temporaries from memory that it holds; the other runner would map fresh pages in each call. Fixed settings treat
both alike. 32 MiB is the most that glibc accepts.
"""


def clean_environment(folder: Path, *, interpret: bool) -> dict[str, str]:
    """The inherited variables, and those that make libraries behave in a runner; `folder` is for temporary files."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    # The runner needs libraries that an operator put on the path, as in an offline install.
    extra = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(ROOT)]
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *extra])
    environment |= {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        # Libraries ask for the user's name at import. A container's user may have none in /etc/passwd.
        "USER": "runner",
        "LOGNAME": "runner",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # torch.cuda.is_available() would otherwise initialise CUDA in the zygote, and CUDA does not survive a fork.
        NVML_CHECK: "1",
        "CUDA_MODULE_LOADING": "LAZY",
        # Inductor compiles in the runner itself: its pool has a thread for every core, more than a runner may start.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # It chooses their folder at its import, which may be the zygote's, and a runner may not write there.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
        # One thread: threads that wait for each other on few cores would measure the host's other load.
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **MALLOC_SETTINGS}
    return environment
