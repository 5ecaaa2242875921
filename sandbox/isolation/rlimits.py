"""How much a stranger's process may use, as far as the kernel counts it by process or by user."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from sandbox.isolation.syscalls import prctl

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

MAX_FILE_BYTES = 4 << 30
MAX_OPEN_FILES = 1024
MAX_PROCESSES = 128 + 2 * len(os.sched_getaffinity(0))
"""Threads too: torch starts one for each core, a compiler's helpers some more."""


def die_with_parent(parent: int) -> None:
    """Killed by the kernel when the parent thread ends, so that nothing outlives the process that answers for it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_descendants() -> None:
    """What its children leave behind becomes its own, so that whoever looks below it sees all that it has started."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """No program gives this process more rights than it has, now or later."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def limit() -> None:
    """No core files; bounded files and descriptors. Where all memory is gone, the system ends a stranger first.

    An address-space limit does not work with CUDA: memory is watched by the launcher.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def limit_processes() -> None:
    """For a process with a user of its own: they are counted by user."""
    resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
