"""An empty network, shared memory, IPC and host names of its own, for a stranger: where the worker is root enough.

No new PID namespace: CUDA does not start in one whose /proc shows another's (error 304), and to mount one takes more.
"""

from __future__ import annotations

import ctypes
import errno
import os

from sandbox.identity import CAP_SYS_ADMIN, holds
from sandbox.system_calls import call

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_NETWORK = 0x00020000, 0x04000000, 0x08000000, 0x40000000
_NO_SUID, _NO_DEVICES, _NO_EXECUTION, _RECURSIVE, _PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
KINDS = ("net", "ipc", "uts", "mnt")
SHARED_MEMORY = b"/dev/shm"
SHARED_MEMORY_OPTIONS = b"size=1g,nr_inodes=4096,mode=1777"


def why_not() -> str | None:
    """None where they can be made, else what is missing. Tries it in a child."""
    if not holds(CAP_SYS_ADMIN):
        return "the worker lacks CAP_SYS_ADMIN"
    pid = os.fork()
    if not pid:
        code = errno.EPERM
        try:
            enter()
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return os.strerror(code) if code else None


def enter() -> None:
    """New ones, for this process and what it starts; its /dev/shm is empty, bounded, and goes with it.

    Raises OSError.
    """
    call("unshare", ctypes.c_ulong(_NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_NETWORK))
    if os.path.isdir(SHARED_MEMORY):
        # Nothing that is mounted from here on is seen outside.
        call("mount", None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)
        flags = ctypes.c_ulong(_NO_SUID | _NO_DEVICES | _NO_EXECUTION)
        call("mount", b"tmpfs", SHARED_MEMORY, b"tmpfs", flags, SHARED_MEMORY_OPTIONS)


def of(pid: int | str) -> tuple[str, ...]:
    """Which ones a process is in."""
    return tuple(os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS)
