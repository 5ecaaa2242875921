"""Which files a stranger's process may open: libraries and tools to read, its own folder, the devices it needs."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from domain.paths import ROOT
from sandbox.isolation import landlock

OUR_CODE = ("backends", "domain", "sandbox")
"""The packages that a runner imports; nothing else of the project is opened to it."""
_INSIDE = ("__init__.py", "isolation", "protocol", "runner")
"""The parts of `sandbox` that run inside the untrusted process. `supervisor`, which is trusted, stays closed to it."""

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store", "/gnu/store")
_CONFIGURATION = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "ssl/openssl.cnf"),
    *("localtime", "timezone", "nsswitch.conf", "os-release", "lsb-release", "nvidia", "OpenCL"),
)
"""Of /etc. Not passwd, hosts, machine-id, keys: nothing that names a person or a machine."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


def readable(folder: Path) -> dict[Path, int]:
    """What every runner and builder of a worker may use besides its own folder, with the access to it.

    `folder` is where the jobs' folders lie: no rule is so wide that it has them beneath it.
    """
    found = {Path(place): landlock.READ_AND_EXECUTE for place in _SYSTEM}
    closed = (ROOT, folder.resolve(), Path.home())
    for place in _interpreter_and_tools():
        if not any(ours == place or ours.is_relative_to(place) for ours in closed):
            found[place] = landlock.READ_AND_EXECUTE
    found |= {ROOT / package: landlock.READ for package in OUR_CODE}
    found[ROOT / "sandbox"] = landlock.READ_DIR  # Python looks for its parts by listing it.
    found |= {ROOT / "sandbox" / part: landlock.READ for part in _INSIDE}
    found |= {Path("/etc", name): landlock.READ for name in _CONFIGURATION}
    found |= {place: landlock.READ for place in Path("/etc").glob("python3*")}
    found |= {Path(place): landlock.READ for place in ("/proc", "/sys")}
    found |= {Path("/dev", name): landlock.USE_DEVICE for name in _DEVICES}
    # Not Path.exists, which raises where somebody else's folder is in the way: on a PATH that came with root's shell.
    return {place: access for place, access in found.items() if os.path.exists(place)}


SHARED_MEMORY = Path("/dev/shm")
"""Semaphores and shared memory of the C library, with which a library's worker processes talk to each other."""

USE_SHARED_MEMORY = landlock.READ | landlock.WRITE | landlock.MAKE_REG | landlock.REMOVE_FILE
"""Files alone, whose owner says whose they are: nothing in which others could be hidden."""


def keeps_owners_apart(folder: Path) -> bool:
    """Whether in a folder that everybody may write only a file's owner can remove it: made so where the worker can.

    Docker makes /dev/shm so; a volume of Kubernetes in its place is not, and root's.
    """
    with suppress(OSError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            folder.chmod(mode | stat.S_ISVTX)
        return True
    return False


def out_of_reach(folder: Path) -> Path | None:
    """The first folder that another user cannot enter on the way to what a runner needs; None where there is none."""
    for place in (folder, ROOT / OUR_CODE[0], *map(Path, (sys.executable, sys.prefix, sys.base_prefix, *sys.path))):
        real = place.resolve()
        for step in (real, *real.parents):
            if step.is_dir() and not step.stat().st_mode & stat.S_IXOTH:
                return step
    return None


def below(folder: Path, needed: Iterable[Path]) -> Path | None:
    """The first of the needed places, and of what Python is imported from, that lies below the folder."""
    imported = map(Path, (sys.executable, sys.prefix, sys.base_prefix, *filter(None, sys.path)))
    for place in (*needed, ROOT, *imported):
        if folder.resolve() in place.resolve().parents:
            return place
    return None


def _interpreter_and_tools() -> Iterator[Path]:
    given = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    given += [place for name in _SEARCH_PATHS for place in os.environ.get(name, "").split(os.pathsep)]
    for place in given:
        if place:
            yield Path(place).resolve()
