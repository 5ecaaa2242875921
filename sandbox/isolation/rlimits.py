"""Resource limits of an untrusted process that the kernel enforces by process or by user."""

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
"""Maximum number of processes and threads: torch starts a thread for each core, and compilers some more."""


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the parent thread ends, so that it does not outlive its supervisor."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_descendants() -> None:
    """Makes this process adopt orphaned descendants, so that all of them stay below it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Keeps this process and its programs from gaining rights, for good."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def limit() -> None:
    """Disables core files; limits file sizes and descriptors. The OOM killer ends untrusted processes first.

    Address-space limits do not work with CUDA: the launcher watches memory instead.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def limit_processes() -> None:
    """Limits the processes of a user of its own: the kernel counts them by user."""
    resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
