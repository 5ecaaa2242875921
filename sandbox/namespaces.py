"""An empty network, and IPC and host names of its own, for a stranger's process: where the worker is root enough.

No new PID namespace: CUDA does not start in one whose /proc shows another's (error 304), and to mount one takes more.
"""

from __future__ import annotations

import ctypes
import os

from sandbox.identity import CAP_SYS_ADMIN, holds
from sandbox.system_calls import call

_NEW_IPC, _NEW_UTS, _NEW_NETWORK = 0x08000000, 0x04000000, 0x40000000
KINDS = ("net", "ipc", "uts")


def why_not() -> str | None:
    """None where they can be made, else what is missing."""
    return None if holds(CAP_SYS_ADMIN) else "the worker lacks CAP_SYS_ADMIN"


def enter() -> None:
    """New ones, for this process and what it starts. Raises OSError."""
    call("unshare", ctypes.c_ulong(_NEW_IPC | _NEW_UTS | _NEW_NETWORK))


def of(pid: int | str) -> tuple[str, ...]:
    """Which ones a process is in."""
    return tuple(os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS)
