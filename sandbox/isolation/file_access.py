"""The files that an untrusted process may open: libraries and tools to read, its own folder, and its devices."""

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
"""The packages that a runner imports. Landlock closes the rest of the project to it."""
_INSIDE = ("__init__.py", "isolation", "protocol", "runner")
"""The parts of `sandbox` that run inside the untrusted process. `supervisor`, which is trusted, stays closed to it."""

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store", "/gnu/store")
_CONFIGURATION = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "ssl/openssl.cnf"),
    *("localtime", "timezone", "nsswitch.conf", "os-release", "lsb-release", "nvidia", "OpenCL"),
)
"""Readable files of /etc. Not passwd, hosts, machine-id or keys: nothing that names a person or a machine."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


def readable(folder: Path) -> dict[Path, int]:
    """The paths that every runner and builder may use besides its own folder, with the rights of access.

    The folders of the jobs lie below `folder`: no rule is so wide that it includes them.
    """
    rules = {Path(place): landlock.READ_AND_EXECUTE for place in _SYSTEM}
    closed = (ROOT, folder.resolve(), Path.home())
    for place in _interpreter_and_tools():
        if not any(private == place or private.is_relative_to(place) for private in closed):
            rules[place] = landlock.READ_AND_EXECUTE
    rules |= {ROOT / package: landlock.READ for package in OUR_CODE}
    rules[ROOT / "sandbox"] = landlock.READ_DIR  # Python lists it to find its parts.
    rules |= {ROOT / "sandbox" / part: landlock.READ for part in _INSIDE}
    rules |= {Path("/etc", name): landlock.READ for name in _CONFIGURATION}
    rules |= {place: landlock.READ for place in Path("/etc").glob("python3*")}
    rules |= {Path(place): landlock.READ for place in ("/proc", "/sys")}
    rules |= {Path("/dev", name): landlock.USE_DEVICE for name in _DEVICES}
    # Path.exists would raise if another user's folder is in the way, as on a PATH that comes from root's shell.
    return {place: access for place, access in rules.items() if os.path.exists(place)}


SHARED_MEMORY = Path("/dev/shm")
"""Semaphores and shared memory of the C library; worker processes of libraries communicate through them."""

USE_SHARED_MEMORY = landlock.READ | landlock.WRITE | landlock.MAKE_REG | landlock.REMOVE_FILE
"""Regular files only, whose owner is known. Folders could hide other users' files."""


def restrict_removal_to_owners(folder: Path) -> bool:
    """Whether only a file's owner can remove it from a folder that everybody may write. Sets the sticky bit if it may.

    Docker sets the bit on /dev/shm. A Kubernetes volume in its place belongs to root and lacks it.
    """
    with suppress(OSError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            folder.chmod(mode | stat.S_ISVTX)
        return True
    return False


def out_of_reach(folder: Path) -> Path | None:
    """The first folder on the way to a runner's files that another user cannot enter; None if there is none."""
    for place in (folder, ROOT / OUR_CODE[0], *map(Path, (sys.executable, sys.prefix, sys.base_prefix, *sys.path))):
        real = place.resolve()
        for step in (real, *real.parents):
            if step.is_dir() and not step.stat().st_mode & stat.S_IXOTH:
                return step
    return None


def below(folder: Path, needed: Iterable[Path]) -> Path | None:
    """The first needed or imported path that lies below the folder; None if there is none."""
    imported = map(Path, (sys.executable, sys.prefix, sys.base_prefix, *filter(None, sys.path)))
    for place in (*needed, ROOT, *imported):
        if folder.resolve() in place.resolve().parents:
            return place
    return None


def _interpreter_and_tools() -> Iterator[Path]:
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    paths += [place for name in _SEARCH_PATHS for place in os.environ.get(name, "").split(os.pathsep)]
    for place in paths:
        if place:
            yield Path(place).resolve()
