"""Stops a stranger's processes, all of them and for sure, and lets them go on.

On a GPU the contexts of two processes take turns; on the host nothing keeps a stranger from computing on inputs while
they are being written, or from writing answers while they are being read, but that it does not run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sandbox.census import family

AT_REST = b"TtDZX"
"""States that run nothing of the stranger's: stopped, in a system call whose end stops it, dead (proc_pid_stat(5))."""

POLL_S = 20e-6
SLACK_NS = 100_000
"""Who was put off a processor on his way to a stop comes back to it for some microseconds."""


class NotFrozen(Exception):
    """Some of the processes do not stop."""


class Ran(NamedTuple):
    """Nanoseconds on a processor, and how often one was given."""

    ns: int
    turns: int


@dataclass(frozen=True)
class Frozen:
    """Who was stopped, from when on (time.perf_counter_ns) none of them ran, and what they had of processors so far."""

    pids: frozenset[int]
    since_ns: int
    ran: Ran

    @property
    def stayed(self) -> bool:
        """Whether none of them has run since: there may be ways to go on that `sandbox.seccomp` does not know."""
        now = _ran(self.pids)
        # Time alone says nothing: of who has just stopped it is told as it was at the last tick, and grows once more
        # when he leaves his processor. Who runs again has been given one again.
        again = now.turns > self.ran.turns and now.ns > self.ran.ns + SLACK_NS
        return all(map(_at_rest, self.pids)) and not again


def freeze(pid: int, within_s: float) -> Frozen:
    """Stops a process and all that it has started, and returns when all are at rest. Raises NotFrozen.

    Its children stay its own (`sandbox.confinement`), and whoever is at rest starts no new ones: when one round over
    the family finds nobody awake and nobody new, there is nobody else but whom somebody was starting as it was stopped,
    behind that look at the family: so there is another. A process alone that is at rest at the first look was stopped
    by the signal, a few microseconds after it was sent. One that is not waits for a processor to be stopped on, or is
    in a system call, which goes on to its end and may write answers: it is charged what it still ran. To look for
    others takes longer, which those who have some are charged.
    """
    _signal(pid, signal.SIGSTOP)
    since_ns, before = time.perf_counter_ns(), _ran([pid])
    until = time.monotonic() + within_s
    stopped, at_once = {pid}, True
    while True:
        members = family(pid)
        new = members - stopped
        awake = new | {one for one in members if not _at_rest(one)}
        for one in awake:
            _signal(one, signal.SIGSTOP)  # Again where it was told before: whoever else may signal it might undo it.
        stopped |= new
        if not awake and family(pid) <= stopped:
            now_ns, ran = time.perf_counter_ns(), _ran(stopped)
            if len(stopped) == 1:
                # Of who was on a processor, `before` may be a tick old: he is charged too much then.
                now_ns = min(now_ns, since_ns + (0 if at_once else ran.ns - before.ns))
            return Frozen(frozenset(stopped), now_ns, ran)
        if time.monotonic() > until:
            thaw(stopped)
            raise NotFrozen
        at_once = False
        time.sleep(POLL_S)


def thaw(pids: Iterable[int]) -> None:
    """Lets them go on; those that are gone are none of our business."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _ran(pids: Iterable[int]) -> Ran:
    """Of all their threads that live, by schedstat: time on a processor, time waiting for one, turns on one."""
    ns = turns = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    on_ns, _, given = map(int, Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split())
                    ns, turns = ns + on_ns, turns + given
    return Ran(ns, turns)


def _at_rest(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            place = f"/proc/{pid}/task/{thread}/stat"
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(place, "rb") as stat:
                # The name before it is the stranger's to choose: it may hold brackets.
                if stat.read().rpartition(b") ")[2][:1] not in AT_REST:
                    return False
    return True
