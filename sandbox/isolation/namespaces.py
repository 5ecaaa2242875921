"""Namespaces of an untrusted process: an empty network, its own shared memory, IPC and host names, a private /tmp.

It gets no PID namespace: CUDA fails (error 304) where /proc shows another one's, and mounting /proc needs more rights.
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
    """Why namespaces cannot be created; None if they can. Tries it in a child."""
    if not holds(CAP_SYS_ADMIN):
        return "the worker lacks CAP_SYS_ADMIN"
    return _tried(enter)


def why_no_users() -> str | None:
    """Why a worker without CAP_SYS_ADMIN cannot mount in a user namespace; None if it can. Tries it in a child."""

    def attempt() -> None:
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            enter_as_user()
            mount_as_temporary(Path(folder))

    return _tried(attempt)


def enter() -> None:
    """Enters new namespaces, for this process and its children, with an empty and bounded /dev/shm. Raises OSError."""
    call("unshare", ctypes.c_ulong(_NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_NETWORK))
    _keep_mounts_here()
    if os.path.isdir(SHARED_MEMORY):
        flags = ctypes.c_ulong(_NO_SUID | _NO_DEVICES | _NO_EXECUTION)
        call("mount", b"tmpfs", SHARED_MEMORY, b"tmpfs", flags, SHARED_MEMORY_OPTIONS)


def enter_as_user() -> None:
    """Enters a user and a mount namespace for a worker without CAP_SYS_ADMIN; only the worker's user exists in it.

    The process has every capability there until `sandbox.isolation.uid.become` takes them. Raises OSError.
    """
    user, group = os.geteuid(), os.getegid()
    call("unshare", ctypes.c_ulong(_NEW_USERS | _NEW_MOUNTS))
    # Each id maps to itself. The kernel requires setgroups to be off: leaving a group could open files.
    for place, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{place}", "w", encoding="ascii") as file:
            file.write(text)
    _keep_mounts_here()


def mount_as_temporary(folder: Path) -> None:
    """Mounts the folder as /tmp, in the mount namespace of this process. Raises OSError."""
    call("mount", os.fsencode(folder), os.fsencode(TEMPORARY), None, ctypes.c_ulong(_BIND), None)


def of(pid: int | str) -> tuple[str, ...]:
    return tuple(os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS)


def _keep_mounts_here() -> None:
    """Keeps later mounts invisible outside of this namespace."""
    call("mount", None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)


def _tried(attempt: Callable[[], None]) -> str | None:
    """The error of the attempt, made in a child; None if it succeeds."""
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
