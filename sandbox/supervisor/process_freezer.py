"""Stops all processes of a runner by SIGSTOP, and lets them continue.

On a CPU the referee reads outputs and inputs while the runner is stopped, so that no process changes them meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection

from sandbox.isolation.process_tree import signal_child, with_descendants

STOPPED = b"TtDZX"
"""Process states that run no code of the submission: stopped, in a system call, dead (proc_pid_stat(5)).

The parent of a vfork stays in its call until the child ends, which it cannot do while it is stopped.
"""


def freeze(pid: int, descriptor: int, wait: Callable[[], None]) -> frozenset[int]:
    """Stops a process and its descendants; returns them once all are stopped. Calls `wait` until then, which may raise.

    `descriptor` is the process's pidfd: another process may have its pid by now. Its descendants stay below it
    (`sandbox.isolation.apply`), and a stopped process starts no new ones. A process that forked during a search for
    descendants was not stopped before it. Therefore two searches in a row must find the same stopped processes.
    A process in a system call counts as stopped only after the signal: it would run on when the call ends.
    """
    signalled: set[int] = set()
    stopped_before: set[int] = set()
    while True:
        members = with_descendants(pid)
        running = {one for one in members if one not in signalled or not _is_stopped(one)}
        if not running and members <= stopped_before:
            return frozenset(members)
        for one in running:
            if one == pid:
                _signal(descriptor, signal.SIGSTOP)
            else:
                signal_child(one, signal.SIGSTOP, members)
        signalled |= running
        if running:
            wait()
        stopped_before = members - running


def thaw(pid: int, members: Collection[int], descriptor: int) -> None:
    """Continues the process of the pidfd `descriptor`, and those of `members` that still are its descendants."""
    for member in members:
        if member != pid:
            signal_child(member, signal.SIGCONT, members)
    _signal(descriptor, signal.SIGCONT)


def _signal(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _is_stopped(pid: int) -> bool:
    """Whether none of its threads runs code of the submission."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return True
    for thread in threads:
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/task/{thread}/stat", "rb") as stat,
        ):
            # The submission chooses the name before it, which may contain brackets.
            if stat.read().rpartition(b") ")[2][:1] not in STOPPED:
                return False
    return True
