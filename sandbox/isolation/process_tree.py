"""The processes of a stranger: who they are, and how all of them are ended."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from domain.fault import InfrastructureFault

EXITING = 0x4  # PF_EXITING of a thread's flags (proc_pid_stat(5))

HELPERS, HELPER_S, POLL_S = 20, 1.0, 0.0005
"""So many, one after the other, may be kept from their work, each for so long."""


def children(pid: int) -> set[int]:
    """Of all its threads."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as each:
                found.update(map(int, each.read().split()))
    return found


def family(pid: int) -> set[int]:
    """A process and everything it has started that has not left for another parent."""
    found = {pid}
    waiting = [pid]
    while waiting:
        new = children(waiting.pop()) - found
        found |= new
        waiting += new
    return found


@dataclass(frozen=True)
class ProcessStatus:
    """The pid of the parent, 0 for none, and the start time in ticks since the system's start."""

    parent: int
    started: int


def status_of(pid: int) -> ProcessStatus | None:
    """None for a process that is gone; a zombie is there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The name before it is the stranger's to choose: it may hold brackets.
            fields = stat.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return ProcessStatus(int(fields[1]), int(fields[19]))


def user_of(pid: int) -> int | None:
    """The user whose a process is; None for one that is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(b"Uid:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return None


def signal_child(pid: int, number: signal.Signals, parents: Collection[int]) -> None:
    """Sends a signal to that process if it is a child of one of the parents; else to nobody.

    A stranger's child may have ended since its number was read, and another process may have the number. The descriptor
    stands for one process only, whose parent is looked at before the signal is sent. `Runner` needs pidfds too (Linux
    5.3), so there is no other way for older kernels.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):  # It has ended, and a thread may have its number.
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
    """How many it has."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def exiting(pid: int) -> bool:
    """Whether its end has begun, in all of its threads."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as stat:
                    # The name before it is the stranger's to choose: it may hold brackets.
                    flags = int(stat.read().rpartition(b") ")[2].split()[6])
                if not flags & EXITING:
                    return False
    except FileNotFoundError:
        pass
    return True


def end_all_of(user: int) -> None:
    """Kills every process of that user at once, from one that becomes that user to do it. Needs to be root.

    No other way is sure to end those that start new ones all the time. Once it has become that user, they may signal it
    too: one that they have stopped is killed, and another does it. Raises InfrastructureFault where none gets it done.
    """
    for _ in range(HELPERS):
        helper = os.fork()
        if not helper:
            _end_all_as(user)
        if _ends(helper):
            return
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
    raise InfrastructureFault(f"processes of user {user} could not be ended: they stop whoever is to do it")


def _ends(child: int) -> bool:
    """Whether it does within HELPER_S."""
    until = time.monotonic() + HELPER_S
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(POLL_S)
    return False


def _end_all_as(user: int) -> NoReturn:
    try:
        os.setresuid(user, user, user)
        os.kill(-1, signal.SIGKILL)  # Everybody that this user may signal but the caller, in one go.
    finally:
        os._exit(0)
