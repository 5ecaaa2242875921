"""Whose streams have hardware queues of their own, and when it begins anew because that was the wrong choice (ADR 35).

A context of one hardware queue is made and ended in half the time. It begins what it is given in turn: two streams run
beside each other as long as none waits, and whoever waits makes all wait. Kernels of several streams get contexts of
several queues. Of those the device gives whole slices of its time to one that waits in two queues, as at the gate.
Where that made windows ready late the kernel is timed in one queue, if its streams gain nothing by queues of their own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from domain.fault import FreezeViolation
from domain.flags import Flag, FlagCode
from domain.kernel import Kernel
from domain.result import CANDIDATE, REFERENCE, Report
from tasks.runtime.kernel_run import Contender, Stopped

MAKES_STREAMS = re.compile(r"\b(External)?Stream\s*\(|StreamCreate|StreamFromPool|graph", re.IGNORECASE)
"""Not what asks for the current one (`getCurrentCUDAStream()`), as nearly every extension does."""
GAIN = 1.1
"""So many times as long in one queue: its streams gain by queues of their own, beyond what noise does."""
TIMES_AS_LONG = 3.0
"""As a job has taken, its builds with it, has to have been left of its time: so much is spent once more, and then some.
"""
ONE_QUEUE = "its streams shared one queue: what it launched in one may have waited for what it had launched in another"
NOT_CHOSEN = Flag(
    FlagCode.SHARED_HARDWARE_QUEUE,
    "its streams shared one hardware queue, and the job's time did not allow a restart with separate queues, which may "
    "be faster: name its streams in the source, or raise `timeout`",
)
ALL = frozenset((CANDIDATE, REFERENCE))


@dataclass(frozen=True)
class Queues:
    """Whose streams have queues of their own, by role, and what the job has learnt and spent before it began like this.

    Spent of its time, and the seconds for which it held the device.
    `beside_ms` is what a call of the candidate took in windows that were ready late, its streams beside each other.
    `settled`: it does not begin anew for that. `doubted`: it has once because processes had not stood still.
    """

    apart: frozenset[str] = frozenset()
    beside_ms: float | None = None
    spent_s: float = 0.0
    held_s: float = 0.0
    settled: bool = False
    doubted: bool = False

    def of(self, contenders: Sequence[Contender]) -> list[bool]:
        """Whether the streams of each are to have queues of their own."""
        return [contender.role in self.apart for contender in contenders]


class BeginAnew(Exception):
    """The job is to be judged in contexts of these queues, from its builds on."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(f"with streams apart: {sorted(queues.apart)}")
        self.queues = queues

    def after(self, held_s: float) -> BeginAnew:
        """The same, once it is known for how long the device was held."""
        return BeginAnew(replace(self.queues, held_s=held_s + self.queues.held_s))


def chosen(kernels: Iterable[Kernel]) -> Queues:
    """What a job of those kernels begins with."""
    return Queues(ALL) if any(map(_makes_streams, kernels)) else Queues()


def judged(run: Callable[[Queues], Report], queues: Queues) -> tuple[Report, Queues]:
    """What `run` gives in the end, and with which queues. Each time that it begins anew it knows more, until it is
    settled.
    """
    while True:
        try:
            return run(queues), queues
        except BeginAnew as anew:
            queues = anew.queues


@contextmanager
def until_stopped(contenders: Sequence[Contender], queues: Queues, seconds: float) -> Iterator[None]:
    """Ends where a contender's fault stops the job, but for the first time that one seems not to have stood still.

    Then BeginAnew, if of the job's `seconds` enough are left: on a busy host who has just stopped can look as if he had
    run (ADR 24).
    """
    began = time.monotonic()
    try:
        yield
    except Stopped:
        once_more = _once_more(queues, contenders, began, seconds)
        seems_so = any(isinstance(contender.fault, FreezeViolation) for contender in contenders)
        if once_more is not None and seems_so and not queues.doubted:
            raise BeginAnew(replace(once_more, doubted=True)) from None


def _once_more(queues: Queues, contenders: Sequence[Contender], began: float, seconds: float) -> Queues | None:
    """With what the job has spent by now; None where too little of its `seconds` is left for as long again."""
    own_s = time.monotonic() - began + sum(contender.build_s for contender in contenders)
    fits = TIMES_AS_LONG * own_s < seconds - queues.spent_s
    return replace(queues, spent_s=queues.spent_s + own_s) if fits else None


def _makes_streams(kernel: Kernel) -> bool:
    """In so many words, or graphs."""
    return MAKES_STREAMS.search(kernel.source_code) is not None


class Streams:
    """Of a job that was begun with those queues, now. `deadline` is when its kernels have had `seconds` in all.

    Each look raises BeginAnew where it finds a reason, and the time is there.
    """

    def __init__(self, queues: Queues, contenders: Sequence[Contender], seconds: float) -> None:
        self.queues = queues
        self._contenders = contenders
        self._began = time.monotonic()
        self._seconds = seconds
        self.deadline = self._began + seconds - queues.spent_s

    def look_at_calls(self) -> None:
        """Libraries work on several streams, and sources that name none: found out by a first call."""
        if any(map(in_one_queue, self._contenders)) and not self.queues.apart:
            self._begin_anew(ALL)

    def look_at_hold_up(self, call_ms: float) -> None:
        """The candidate's windows were ready late, and took so long a call after that."""
        if self.queues.beside_ms is not None:
            self._begin_anew(ALL, settled=True)
        elif CANDIDATE in self.queues.apart:
            self._begin_anew(frozenset((REFERENCE,)), beside_ms=call_ms)

    def look_at_time(self, call_ms: float) -> None:
        """The candidate's windows were ready in time, and took so long a call."""
        if self.queues.beside_ms is not None and call_ms > GAIN * self.queues.beside_ms:
            self._begin_anew(ALL, settled=True)

    def _begin_anew(self, apart: frozenset[str], *, beside_ms: float | None = None, settled: bool = False) -> None:
        """Where that would take too long the job goes on as it is; what it was timed in is told."""
        once_more = _once_more(self.queues, self._contenders, self._began, self._seconds)
        if once_more is not None and not self.queues.settled:
            raise BeginAnew(replace(once_more, apart=apart, beside_ms=beside_ms, settled=settled))


def apart(contenders: Sequence[Contender]) -> list[str]:
    """Whose streams had queues of their own, by role: as those of a context have that was not made ahead, too."""
    return [one.role for one in contenders if one.standby is not None and not one.standby.one_queue]


def in_one_queue(contender: Contender) -> bool:
    """Whether its calls work on several streams that share one."""
    one_queue = contender.standby is not None and contender.standby.one_queue
    return one_queue and contender.probe is not None and contender.probe.several_streams
