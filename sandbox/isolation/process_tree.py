"""Finds the processes of a submission, signals them, and kills all of them."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn

from domain.fault import InfrastructureFault

EXITING = 0x4  # PF_EXITING of a thread's flags (proc_pid_stat(5))

HELPERS, HELPER_S, POLL_S = 20, 1.0, 0.0005
"""Maximum number of helper processes, time for each and interval of checks, in s: a submission can stop a helper."""


def children(pid: int) -> set[int]:
    pids: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                pids.update(map(int, file.read().split()))
    return pids


def with_descendants(pid: int) -> set[int]:
    """A process and its descendants, without those that another process has adopted."""
    tree = {pid}
    waiting = [pid]
    while waiting:
        new = children(waiting.pop()) - tree
        tree |= new
        waiting += new
    return tree


@dataclass(frozen=True)
class ProcessStatus:
    """`parent` is the parent's pid, 0 for none; `started` is the start time in ticks since the system's start."""

    parent: int
    started: int


def status_of(pid: int) -> ProcessStatus | None:
    """None for a process that is gone; a zombie still has a status."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The submission chooses the name before it, which may contain brackets.
            fields = stat.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return ProcessStatus(int(fields[1]), int(fields[19]))


def living_thread_dir(pid: int) -> str | None:
    """The folder in /proc of the first thread of a process that still has memory; None for a process that has ended.

    The first thread may end before the others. Its own folder then shows no memory, files or mappings of theirs.
    """
    try:
        threads = sorted(map(int, os.listdir(f"/proc/{pid}/task")), key=lambda thread: thread != pid)
    except OSError:
        return None
    return next((f"/proc/{thread}" for thread in threads if _has_memory(thread)), None)


def _has_memory(thread: int) -> bool:
    try:
        with open(f"/proc/{thread}/status", "rb") as status:
            return any(line.startswith(b"VmRSS:") for line in status)
    except OSError:
        return False


def user_of(pid: int) -> int | None:
    """The user id of a process; None for a process that is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(b"Uid:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return None


def signal_child(pid: int, number: signal.Signals, parents: Collection[int]) -> None:
    """Signals a process only if it is a child of one of the parents.

    A submission's child may have ended since its pid was read, and another process may have that pid. A pidfd names one
    process only; this function checks its parent before it signals. The sandbox needs pidfds (Linux 5.3) anyway.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):  # It has ended; the number may be that of a thread.
            return
        raise
    try:
        status = status_of(pid)
        if status is not None and status.parent in parents:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def threads(pid: int) -> int:
    """The number of its threads; 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def exiting(pid: int) -> bool:
    """Whether all of its threads have begun to exit."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as stat:
                    # The submission chooses the name before it, which may contain brackets.
                    flags = int(stat.read().rpartition(b") ")[2].split()[6])
                if not flags & EXITING:
                    return False
    except FileNotFoundError:
        pass
    return True


def kill_user(user: int, kill_all_as: Callable[[int], None] | None = None) -> None:
    """Kills every process of that user at once, from a helper process that becomes that user. Needs root.

    Killing one by one would miss processes that start new ones all the time. They may stop the helper once it has
    become their user: the caller then kills it and starts another. Raises InfrastructureFault if no helper succeeds.

    `kill_all_as` is what a helper does instead, with the user as argument; it does not return.
    """
    for _ in range(HELPERS):
        helper = os.fork()
        if not helper:
            (kill_all_as or _kill_all_as)(user)
        if _exits_in_time(helper):
            return
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
    raise InfrastructureFault(f"processes of user {user} could not be killed: they stop every process that tries to")


def _exits_in_time(child: int) -> bool:
    """Whether the child exits within HELPER_S."""
    until = time.monotonic() + HELPER_S
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(POLL_S)
    return False


def _kill_all_as(user: int) -> NoReturn:
    try:
        os.setresuid(user, user, user)
        # Signals every process that this user may signal, except the caller, in one system call.
        os.kill(-1, signal.SIGKILL)
    finally:
        os._exit(0)
