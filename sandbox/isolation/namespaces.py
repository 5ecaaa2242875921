"""Namespaces of its own for a stranger: an empty network, shared memory, IPC and host names, and a private /tmp.

No new PID namespace: CUDA does not start in one whose /proc shows another's (error 304), and to mount one takes more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from sandbox.isolation.syscalls import call
from sandbox.isolation.uid import CAP_SYS_ADMIN, holds

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_NETWORK, _NEW_USERS = 0x00020000, 0x04000000, 0x08000000, 0x40000000, 0x10000000
_NO_SUID, _NO_DEVICES, _NO_EXECUTION, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
KINDS = ("net", "ipc", "uts", "mnt")
SHARED_MEMORY = b"/dev/shm"
SHARED_MEMORY_OPTIONS = b"size=1g,nr_inodes=4096,mode=1777"
TEMPORARY = Path("/tmp")


def why_not() -> str | None:
    """None where they can be made, else what is missing. Tries it in a child."""
    if not holds(CAP_SYS_ADMIN):
        return "the worker lacks CAP_SYS_ADMIN"
    return _tried(enter)


def why_no_users() -> str | None:
    """None where a user namespace lets a worker without CAP_SYS_ADMIN mount, else what is missing. Tries it."""

    def attempt() -> None:
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            enter_as_user()
            mount_as_temporary(Path(folder))

    return _tried(attempt)


def enter() -> None:
    """New ones, for this process and what it starts; its /dev/shm is empty, bounded, and goes with it.

    Raises OSError.
    """
    call("unshare", ctypes.c_ulong(_NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_NETWORK))
    _keep_mounts_here()
    if os.path.isdir(SHARED_MEMORY):
        flags = ctypes.c_ulong(_NO_SUID | _NO_DEVICES | _NO_EXECUTION)
        call("mount", b"tmpfs", SHARED_MEMORY, b"tmpfs", flags, SHARED_MEMORY_OPTIONS)


def enter_as_user() -> None:
    """Mounts of its own for a worker without CAP_SYS_ADMIN, in a user namespace that has the worker's user alone.

    It has every capability there until `sandbox.isolation.uid.become` takes them. Raises OSError.
    """
    user, group = os.geteuid(), os.getegid()
    call("unshare", ctypes.c_ulong(_NEW_USERS | _NEW_MOUNTS))
    # Each id stands for itself. The kernel wants groups kept: to leave one would open files that are closed to it.
    for place, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{place}", "w", encoding="ascii") as file:
            file.write(text)
    _keep_mounts_here()


def mount_as_temporary(folder: Path) -> None:
    """Makes the folder /tmp, in the mount namespace of this process. Raises OSError."""
    call("mount", os.fsencode(folder), os.fsencode(TEMPORARY), None, ctypes.c_ulong(_BIND), None)


def is_temporary(folder: Path) -> bool:
    """Whether /tmp is that folder."""
    return TEMPORARY.is_dir() and os.path.samefile(TEMPORARY, folder)


def of(pid: int | str) -> tuple[str, ...]:
    """Which ones a process is in."""
    return tuple(os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS)


def _keep_mounts_here() -> None:
    """Nothing that is mounted from here on is seen outside."""
    call("mount", None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)


def _tried(attempt: Callable[[], None]) -> str | None:
    """In a child: what it fails with."""
    pid = os.fork()
    if not pid:
        code = errno.EPERM
        try:
            attempt()
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return os.strerror(code) if code else None
