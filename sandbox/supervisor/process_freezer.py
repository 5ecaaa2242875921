"""Stops a stranger's processes, all of them and for sure, and lets them go on.

On a GPU the contexts of two processes take turns; on the host nothing keeps a stranger from computing on inputs while
they are being written, or from writing answers while they are being read, but that it does not run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sandbox.isolation.process_tree import EXITING, family, signal_child

STOPPED, IN_A_CALL, DEAD = b"Tt", b"D", b"ZX"
"""States that run nothing of the stranger's: stopped, in a system call whose end stops it, dead (proc_pid_stat(5))."""

_ENDS_NOBODY = ("STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD", "URG", "WINCH")
HARMLESS = sum(1 << (signal.Signals[f"SIG{name}"] - 1) for name in _ENDS_NOBODY)
"""Signals, as /proc tells them, that end nobody who has not said what they are to do."""

POLL_S = 20e-6
SLACK_NS = 100_000
"""Who was put off a processor on his way to a stop comes back to it for some microseconds."""


class NotFrozen(Exception):
    """Some of the processes do not stop."""


class Ran(NamedTuple):
    """Of a thread: nanoseconds on a processor, and how often one was given."""

    ns: int
    turns: int


@dataclass(frozen=True)
class Frozen:
    """Who was stopped, from when on (time.perf_counter_ns) none of them ran, and what each thread had run so far."""

    pids: frozenset[int]
    since_ns: int
    ran: Mapping[int, Ran]

    @property
    def stayed(self) -> bool:
        """Whether none of them has run since: there may be ways to go on that `sandbox.isolation.seccomp` does not
        know.

        Nobody ends who is stopped: a thread that is gone has run, and nobody can tell for how long.
        """
        now = _ran(self.pids)
        # Time alone says nothing: of who has just stopped it is told as it was at the last tick, and grows once more
        # when he leaves his processor. Who runs again has been given one again. By thread: of a sum, the time of who
        # has gone would cover that of who has run.
        again_ns = sum(ran.ns - was.ns for ran, was in _pairs(self.ran, now) if ran.turns > was.turns)
        return self.ran.keys() <= now.keys() and again_ns <= SLACK_NS and all(map(_at_rest, self.pids))


def freeze(pid: int, within_s: float, descriptor: int) -> Frozen:
    """Stops a process and all that it has started, and returns when all are at rest. Raises NotFrozen.

    `descriptor` is the process's pidfd: its number may be another's by now.

    Its children stay its own (`sandbox.isolation.apply`), and whoever is at rest starts no new ones: when one round
    over the family finds nobody awake and nobody new, there is nobody else but whom somebody was starting as it was
    stopped, behind that look at the family: so there is another. An end may wake others: the kernel continues a group
    that it leaves an orphan. So whoever is ending is awake until he has ended, and those who have company are at rest
    when two rounds in a row find the same threads so: who ended during the first is missing in the second, and whom
    that woke is seen there. A process alone that is at rest at the first look was stopped by the signal, a few
    microseconds after it was sent. One that is not waits for a processor to be stopped on, or is in a system call,
    which goes on to its end and may write answers: it is charged what it still ran. To look for others takes longer,
    which those who have some are charged.
    """
    _signal(descriptor, signal.SIGSTOP)
    since_ns, before = time.perf_counter_ns(), _ran([pid])
    until = time.monotonic() + within_s
    stopped, at_once = {pid}, True
    settled: dict[int, Ran] = {}
    while True:
        members = family(pid)
        new = members - stopped
        threads = {one: _living(one) for one in members}
        awake = new | {one for one in members if not all(threads[one].values())}
        for one in awake:
            # Again where it was told before: whoever else may signal it might undo it.
            if one == pid:
                _signal(descriptor, signal.SIGSTOP)
            else:
                signal_child(one, signal.SIGSTOP, members)
        stopped |= new
        if not awake:
            living = {thread for each in threads.values() for thread in each}
            if len(stopped) == 1 and family(pid) == stopped:
                took_ns, ran = time.perf_counter_ns() - since_ns, _of(living, stopped)
                charged_ns = 0 if at_once else _charged_ns(took_ns, before, ran)
                return Frozen(frozenset(stopped), since_ns + charged_ns, ran)
            if settled.keys() == living and len(stopped) > 1:
                return Frozen(frozenset(stopped), time.perf_counter_ns(), settled)
            # Before the look that confirms it: who was woken meanwhile is awake then, or is given a processor later.
            settled = _of(living, stopped)
        else:
            settled = {}
        if time.monotonic() > until:
            thaw(pid, stopped, descriptor)
            raise NotFrozen
        at_once = False
        if awake:
            time.sleep(POLL_S)


def thaw(pid: int, members: Collection[int], descriptor: int) -> None:
    """Lets the process of that pidfd go on, and those of its family that still belong to it."""
    for member in members:
        if member != pid:
            signal_child(member, signal.SIGCONT, members)
    _signal(descriptor, signal.SIGCONT)


def _signal(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _ran(pids: Iterable[int]) -> dict[int, Ran]:
    """Of each of their threads, by schedstat: time on a processor, time waiting for one, turns on one."""
    found = {}
    for pid in pids:
        for thread in _threads(pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                ns, _, turns = map(int, Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split())
                found[int(thread)] = Ran(ns, turns)
    return found


def _of(living: set[int], pids: Iterable[int]) -> dict[int, Ran]:
    """Without the dead, who may be gone at any time."""
    return {thread: ran for thread, ran in _ran(pids).items() if thread in living}


def _pairs(before: Mapping[int, Ran], now: Mapping[int, Ran]) -> list[tuple[Ran, Ran]]:
    """What each has run now, and had before."""
    return [(ran, before.get(thread, Ran(0, 0))) for thread, ran in now.items()]


def _charged_ns(most: int, before: Mapping[int, Ran], now: Mapping[int, Ran]) -> int:
    """What they have still run; nobody can tell that of who has ended meanwhile.

    Of who was on a processor, `before` may be a tick old: he is charged too much then.
    """
    return most if before.keys() - now.keys() else min(most, sum(ran.ns - was.ns for ran, was in _pairs(before, now)))


def _at_rest(pid: int) -> bool:
    return all(_living(pid).values())


def _living(pid: int) -> dict[int, bool]:
    """Its threads that are not dead, and whether they are at rest."""
    found = {}
    for thread in _threads(pid):
        place = f"/proc/{pid}/task/{thread}"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"{place}/stat", "rb") as stat:
            # The name before it is the stranger's to choose: it may hold brackets.
            fields = stat.read().rpartition(b") ")[2].split()
            if fields[0] not in DEAD:
                rests = fields[0] in STOPPED or (fields[0] in IN_A_CALL and not _is_to_end(place))
                found[int(thread)] = rests and not int(fields[6]) & EXITING
    return found


def _is_to_end(place: str) -> bool:
    """Whether a signal waits for the end of the thread's system call that then ends it rather than stops it."""
    with open(f"{place}/status", "rb") as status:
        told = dict(line.split(b":", 1) for line in status.read().splitlines())
    own, shared, *no_end = (int(told[name], 16) for name in (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt"))
    return bool((own | shared) & ~HARMLESS & ~(no_end[0] | no_end[1] | no_end[2]))


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
