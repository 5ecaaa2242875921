"""Gives kernel runs contexts with several hardware queues, and restarts the job after a wrong choice (ADR 24).

A context of one hardware queue is made and ended in half the time. It starts its work in order: two streams run
concurrently until one of them waits, and then all wait. A kernel that uses several streams gets a context of several
queues. The device gives whole time slices to such a context while it waits in two queues, as it does at the gate. Where
that delayed the setup of windows, the kernel is timed in one queue, unless its streams gain by several.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from domain.kernel import Kernel
from domain.result import CANDIDATE, REFERENCE, Report
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.time_budget import TimeBudget

MAKES_STREAMS = re.compile(r"\b(External)?Stream\s*\(|StreamCreate|StreamFromPool|graph", re.IGNORECASE)
"""Matches sources that make streams or graphs. It does not match `getCurrentCUDAStream()`, which nearly every extension
calls."""
GAIN = 1.1
"""Minimum ratio of a call's time in one queue to its time in several, from which the streams gain more than noise."""
TIMES_AS_LONG = 3.0
"""Minimum ratio of a job's remaining time to the time spent so far, builds included, for a restart: a restart spends
about that time again."""
ONE_QUEUE = "its streams shared one queue: what it launched in one may have waited for what it had launched in another"
ALL = frozenset((CANDIDATE, REFERENCE))


@dataclass(frozen=True)
class Queues:
    """The roles whose contexts have several hardware queues, and what earlier attempts of the job measured and spent.

    `multi_queue_call_ms` is the time of a candidate's call in several queues, from windows whose setup was delayed.
    `spent_s` is the job time that earlier attempts spent, `held_s` the time for which they held the device.
    `final`: the job does not restart for other queues. `one_call`: it ran out of device memory, so that its calls are
    judged one at a time (tasks.runtime.memory_plan). `left_bytes`: the device's memory that other processes left as the
    job was first planned, in bytes; 0 if unknown. `new_process_roles`: the roles whose kernel had a process of earlier
    jobs, and gets a new one for it; `used_process_verdict`: the verdict before that.
    """

    multi_queue_roles: frozenset[str] = frozenset()
    multi_queue_call_ms: float | None = None
    spent_s: float = 0.0
    held_s: float = 0.0
    final: bool = False
    one_call: bool = False
    new_process_roles: frozenset[str] = frozenset()
    used_process_verdict: str | None = None
    left_bytes: int = 0

    def of(self, kernel_runs: Sequence[KernelRun]) -> list[bool]:
        """Whether each kernel run's context has several queues."""
        return [kernel_run.role in self.multi_queue_roles for kernel_run in kernel_runs]


class RestartJob(Exception):
    """Restarts the job with these queues, beginning with its builds."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(f"restart with several hardware queues for: {sorted(queues.multi_queue_roles)}")
        self.queues = queues

    def after(self, held_s: float, left_bytes: int = 0) -> RestartJob:
        """A copy of this restart after an attempt that held the device for `held_s`, with its plan's `left_bytes`."""
        return RestartJob(replace(self.queues, held_s=held_s + self.queues.held_s, left_bytes=left_bytes))


def initial_queues(kernels: Iterable[Kernel]) -> Queues:
    """The queues for the first attempt of a job of those kernels."""
    makes_streams = any(MAKES_STREAMS.search(kernel.source_code) for kernel in kernels)
    return Queues(ALL) if makes_streams else Queues()


def run_until_final(run: Callable[[Queues], Report], queues: Queues) -> tuple[Report, Queues]:
    """Calls `run` until it returns a report; returns that and the queues that it had.

    Each restart carries what the attempt measured, until the queues are final.
    """
    while True:
        try:
            return run(queues), queues
        except RestartJob as restart:
            queues = restart.queues


def with_time_spent(queues: Queues, kernel_runs: Sequence[KernelRun], began: float, seconds: float) -> Queues | None:
    """`queues` with the time of this attempt added; None if too little of the job's `seconds` is left for another."""
    attempt_s = time.monotonic() - began + sum(kernel_run.build.seconds for kernel_run in kernel_runs)
    fits = TIMES_AS_LONG * attempt_s < seconds - queues.spent_s
    return replace(queues, spent_s=queues.spent_s + attempt_s) if fits else None


class Streams:
    """Checks, during one attempt of a job, whether its choice of queues was right.

    Each check raises RestartJob if other queues are better and enough of the job's time is left.
    """

    def __init__(self, queues: Queues, kernel_runs: Sequence[KernelRun], budget: TimeBudget) -> None:
        self.queues = queues
        self._kernel_runs = kernel_runs
        self._budget = budget

    def check_first_call(self) -> None:
        """Restarts where a first call showed several streams in one queue: libraries use streams that no source
        names."""
        if any(map(in_one_queue, self._kernel_runs)) and not self.queues.multi_queue_roles:
            self._restart(ALL)

    def check_setup_delay(self, call_ms: float) -> None:
        """Restarts after the setup of the candidate's windows was delayed; `call_ms` is a call's time after release."""
        if self.queues.multi_queue_call_ms is not None:
            self._restart(ALL, final=True)
        elif CANDIDATE in self.queues.multi_queue_roles:
            self._restart(frozenset((REFERENCE,)), multi_queue_call_ms=call_ms)

    def check_call_time(self, call_ms: float) -> None:
        """Restarts where the candidate's call takes longer in one queue than in several; its setup was in time."""
        if self.queues.multi_queue_call_ms is not None and call_ms > GAIN * self.queues.multi_queue_call_ms:
            self._restart(ALL, final=True)

    def _restart(self, roles: frozenset[str], *, multi_queue_call_ms: float | None = None, final: bool = False) -> None:
        """Raises RestartJob; returns if too little time is left, and then the report says what the job was timed in."""
        queues = with_time_spent(self.queues, self._kernel_runs, self._budget.began, self._budget.seconds)
        if queues is not None and not self.queues.final:
            raise RestartJob(
                replace(queues, multi_queue_roles=roles, multi_queue_call_ms=multi_queue_call_ms, final=final)
            )


def roles_with_own_queues(kernel_runs: Sequence[KernelRun]) -> list[str]:
    """The roles whose contexts had several queues; contexts that were not made ahead of time always do."""
    return [one.role for one in kernel_runs if one.pooled_runner is not None and not one.pooled_runner.one_queue]


def in_one_queue(kernel_run: KernelRun) -> bool:
    """Whether its calls use several streams in a context of one queue."""
    one_queue = kernel_run.pooled_runner is not None and kernel_run.pooled_runner.one_queue
    return one_queue and kernel_run.probe is not None and kernel_run.probe.several_streams
