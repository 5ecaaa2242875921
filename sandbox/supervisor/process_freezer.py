"""Freezes all processes of a runner, verifies that none of them runs, and lets them continue.

On a GPU the contexts of two processes take turns. On the host, only freezing keeps a submission from computing on
inputs while the referee writes them, or from writing outputs while the referee reads them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sandbox.isolation.process_tree import EXITING, signal_child, with_descendants

STOPPED, IN_A_CALL, DEAD = b"Tt", b"D", b"ZX"
"""Process states that run no code of the submission: stopped, in a system call, dead (proc_pid_stat(5))."""

_NON_FATAL = ("STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD", "URG", "WINCH")
HARMLESS = sum(1 << (signal.Signals[f"SIG{name}"] - 1) for name in _NON_FATAL)
"""Signals, as a mask of /proc, whose default action ends no process."""

POLL_S = 20e-6
SLACK_NS = 100_000
"""Maximum CPU time after a freeze, in ns: a thread that was preempted on its way to a stop finishes that later."""


class NotFrozen(Exception):
    """Some of the processes did not stop."""


class CpuUsage(NamedTuple):
    """CPU time of one thread in ns, and how often the kernel scheduled it."""

    ns: int
    switches: int


@dataclass(frozen=True)
class Frozen:
    """Frozen processes, the time since which none ran (time.perf_counter_ns), and each thread's usage then."""

    pids: frozenset[int]
    since_ns: int
    usage: Mapping[int, CpuUsage]

    @property
    def stayed_frozen(self) -> bool:
        """Whether none of them has run since: there may be ways to continue that `sandbox.isolation.seccomp` does not
        know.

        Nothing ends a stopped thread. A thread that is gone must have run, for an unknown time.
        """
        now = cpu_usage(self.pids)
        # CPU time alone is no evidence: the kernel updates it late for a thread that has just stopped. A thread that
        # runs again was scheduled again. Compare by thread: in a sum, the missing time of a dead thread would hide that
        # of another.
        again_ns = sum(usage.ns - was.ns for usage, was in _pairs(self.usage, now) if usage.switches > was.switches)
        return self.usage.keys() <= now.keys() and again_ns <= SLACK_NS and all(map(_all_stopped, self.pids))


def freeze(pid: int, within_s: float, descriptor: int, clock_ns: Callable[[], int] = time.perf_counter_ns) -> Frozen:
    """Stops a process and its descendants, and returns when all are stopped. Raises NotFrozen.

    `descriptor` is the process's pidfd: another process may have its pid by now.

    Its descendants stay below it (`sandbox.isolation.apply`), and a stopped process starts no new ones. A round that
    finds no running and no new process could still miss a child that was being forked during the round, so a second
    round follows.

    An ending process may wake others: the kernel continues the group that it leaves an orphan. A process that is ending
    therefore counts as running. Several processes count as frozen when two consecutive rounds find the same threads
    stopped: a process that ended during the first is missing in the second, which also sees the processes it woke.

    A single process that is stopped at the first look was stopped by the signal, microseconds after it was sent.
    Otherwise it waited for a processor, or was in a system call that ran to its end and may have written outputs. The
    caller is told the time until which it may have run. With several processes, that includes the time that the rounds
    took.
    """
    _signal(descriptor, signal.SIGSTOP)
    since_ns, before = clock_ns(), cpu_usage([pid])
    until = time.monotonic() + within_s
    stopped, first_round = {pid}, True
    settled: dict[int, CpuUsage] = {}
    while True:
        members = with_descendants(pid)
        new = members - stopped
        threads = {one: living_threads(one) for one in members}
        running = new | {one for one in members if not all(threads[one].values())}
        for one in running:
            # Sent again in every round: another process that may signal it might undo it.
            if one == pid:
                _signal(descriptor, signal.SIGSTOP)
            else:
                signal_child(one, signal.SIGSTOP, members)
        stopped |= new
        if not running:
            living = {thread for each in threads.values() for thread in each}
            if len(stopped) == 1 and with_descendants(pid) == stopped:
                took_ns, usage = clock_ns() - since_ns, _of(living, stopped)
                charged_ns = 0 if first_round else _charged_ns(took_ns, before, usage)
                return Frozen(frozenset(stopped), since_ns + charged_ns, usage)
            if settled.keys() == living and len(stopped) > 1:
                return Frozen(frozenset(stopped), clock_ns(), settled)
            # Read before the round that confirms it: a thread that was woken meanwhile runs then, or is scheduled
            # later.
            settled = _of(living, stopped)
        else:
            settled = {}
        if time.monotonic() > until:
            thaw(pid, stopped, descriptor)
            raise NotFrozen
        first_round = False
        if running:
            time.sleep(POLL_S)


def thaw(pid: int, members: Collection[int], descriptor: int) -> None:
    """Continues the process of the pidfd `descriptor`, and those of `members` that still are its descendants."""
    for member in members:
        if member != pid:
            signal_child(member, signal.SIGCONT, members)
    _signal(descriptor, signal.SIGCONT)


def _signal(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def cpu_usage(pids: Iterable[int]) -> dict[int, CpuUsage]:
    """CPU usage of every thread, from schedstat: ns on a processor, ns waiting for one, times scheduled."""
    usage_by_thread = {}
    for pid in pids:
        for thread in _threads(pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                ns, _, switches = map(int, Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split())
                usage_by_thread[int(thread)] = CpuUsage(ns, switches)
    return usage_by_thread


def _of(living: set[int], pids: Iterable[int]) -> dict[int, CpuUsage]:
    """CPU usage of the living threads; dead ones may disappear at any time."""
    return {thread: usage for thread, usage in cpu_usage(pids).items() if thread in living}


def _pairs(before: Mapping[int, CpuUsage], now: Mapping[int, CpuUsage]) -> list[tuple[CpuUsage, CpuUsage]]:
    """The usage of each thread now, and its usage before."""
    return [(usage, before.get(thread, CpuUsage(0, 0))) for thread, usage in now.items()]


def _charged_ns(most: int, before: Mapping[int, CpuUsage], now: Mapping[int, CpuUsage]) -> int:
    """CPU time that the threads used since `before`, in ns; `most` if a thread has ended, because its time is unknown.

    The figure of a thread that was running may be one tick old; the result is too large then.
    """
    return (
        most if before.keys() - now.keys() else min(most, sum(usage.ns - was.ns for usage, was in _pairs(before, now)))
    )


def _all_stopped(pid: int) -> bool:
    return all(living_threads(pid).values())


def living_threads(pid: int) -> dict[int, bool]:
    """The threads that are not dead, and whether each is stopped."""
    stopped_by_thread = {}
    for thread in _threads(pid):
        place = f"/proc/{pid}/task/{thread}"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"{place}/stat", "rb") as stat:
            # The submission chooses the name before it, which may contain brackets.
            fields = stat.read().rpartition(b") ")[2].split()
            if fields[0] not in DEAD:
                is_stopped = fields[0] in STOPPED or (fields[0] in IN_A_CALL and not _has_fatal_signal(place))
                stopped_by_thread[int(thread)] = is_stopped and not int(fields[6]) & EXITING
    return stopped_by_thread


def _has_fatal_signal(place: str) -> bool:
    """Whether a pending signal will end the thread after its system call, instead of stopping it."""
    with open(f"{place}/status", "rb") as status:
        fields = dict(line.split(b":", 1) for line in status.read().splitlines())
    own, shared, *no_end = (int(fields[name], 16) for name in (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt"))
    return bool((own | shared) & ~HARMLESS & ~(no_end[0] | no_end[1] | no_end[2]))


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
