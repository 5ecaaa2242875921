"""What every untrusted process gives up before a stranger's code runs in it."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

MAX_FILE_BYTES = 4 << 30
MAX_OPEN_FILES = 1024

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; raises OSError."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent() -> None:
    """Killed by the kernel when the parent thread ends, so that nothing outlives the process that answers for it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def confine() -> None:
    """For a runner or builder, between fork and the first line of the submission.

    A session of its own (so that one killpg ends it with its children), no new privileges, no core files, bounded
    file sizes and descriptors. An address-space limit does not work with CUDA: memory is watched by the launcher.
    """
    os.setsid()
    die_with_parent()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
