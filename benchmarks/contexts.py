"""`python -m benchmarks.contexts`: the effect on windows of another process that creates and ends CUDA contexts.

A service's windows and contexts wait for each other (`tasks.node.device_lease.quiet`); here all or some steps of a
context do not. Rounds alternate between jobs alone on the device and jobs beside the other process. The table shows
times, which should not differ, and how often a kernel was distinguished from itself.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from benchmarks.timing import Rows, judged
from benchmarks.timing_cases import spin
from domain.flags.codes import FlagCode
from domain.result import Report
from sandbox.isolation.rlimits import die_with_parent
from stack.terminal import Terminal
from tasks.runtime.runner_pool import end
from tasks.runtime.worker_context import WorkerContext

STEPS = (200, 400, 5_000)
"""Kernels of about 4, 6 and 45 µs on an H200."""
ROUNDS = 2
READY = "made"
DISTURBED = frozenset({FlagCode.WINDOWS_EXCLUDED, FlagCode.GPU_DISTURBED})
CREATION = ("opened", "libraries", "launches")
"""Steps of a context, each of which waits for windows by itself (`tasks.runtime.runner_pool.RunnerPool.make`)."""
ENDED = "ended"


class Unquiet(WorkerContext):
    """A worker context that does not wait for other jobs' windows in the given steps."""

    def __init__(self, unquiet: list[str]) -> None:
        self._unquiet = unquiet
        self._next = itertools.cycle((*CREATION, ENDED))
        super().__init__()

    def block_context_creation(
        self, cancelled: Callable[[], bool], queue_offset_s: float = 0.0
    ) -> AbstractContextManager[None]:
        return (
            nullcontext()
            if next(self._next) in self._unquiet
            else super().block_context_creation(cancelled, queue_offset_s)
        )


@dataclass
class Figures:
    """Results of one kind of job: call times, ratios of the kernel to itself, device seconds."""

    times_us: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    device_s: list[float] = field(default_factory=list)
    distinguished: int = 0
    disturbed: int = 0
    undecided: int = 0

    def add(self, report: Report) -> None:
        timing, speedup = report.outcome.timing, report.speedup
        if timing is None or speedup is None:
            self.undecided += 1
            return
        self.times_us.append(timing.latency_ms * 1e3)
        self.ratios.append(speedup.ratio)
        self.device_s.append(report.device.held_s)
        self.distinguished += speedup.verdict != "not_distinguishable"
        self.disturbed += any(flag.code in DISTURBED for flag in timing.flags)

    def figures(self) -> list[str]:
        """The cells of a row, after the number of jobs."""
        counted = [str(self.disturbed), str(self.undecided)]
        if len(self.ratios) < 2:
            return ["-", "-", str(self.distinguished), "-", *counted, "-"]
        return [
            f"{statistics.median(self.times_us):.3f}",
            f"{statistics.stdev(self.times_us) / statistics.mean(self.times_us):.2%}",
            str(self.distinguished),
            f"{statistics.stdev(self.ratios):.2%}",
            *counted,
            f"{statistics.median(self.device_s):.2f}",
        ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contexts", description=__doc__)
    parser.add_argument("--jobs", type=int, default=9, help="of each kernel in each turn")
    parser.add_argument("--budget", default="quick", help="of each job: quick, default or precise")
    every = [*CREATION, ENDED]
    parser.add_argument("--beside", nargs="+", choices=every, default=every, help="steps for which no window waits")
    parser.add_argument("--make", action="store_true", help="the other process: make and end contexts until killed")
    options = parser.parse_args()
    worker = Unquiet(options.beside) if options.make else WorkerContext()
    try:
        if not worker.target.is_cuda:
            raise SystemExit("needs an NVIDIA GPU: there are no contexts without one")
        if isinstance(worker, Unquiet):
            _make(worker)
        else:
            _measure(worker, options.jobs, options.budget, options.beside)
    finally:
        worker.close()
    return 0


def _measure(worker: WorkerContext, jobs: int, budget: str, unquiet: list[str]) -> None:
    figures_by_case = {(steps, concurrent): Figures() for steps in STEPS for concurrent in (False, True)}
    contexts, seconds = 0, 0.0
    judged(worker, spin(STEPS[0]), spin(STEPS[0]), budget=budget)
    for _ in range(ROUNDS):
        for concurrent in (False, True):
            other: AbstractContextManager[list[str]] = _other(unquiet) if concurrent else nullcontext([])
            with other as lines:
                began = time.monotonic()
                for steps in STEPS:
                    for _ in range(jobs):
                        figures_by_case[steps, concurrent].add(judged(worker, spin(steps), spin(steps), budget=budget))
                seconds += (time.monotonic() - began) if concurrent else 0.0
            contexts += len(lines)
    columns = [
        "steps",
        "contexts",
        "jobs",
        "µs",
        "its sd",
        "told apart",
        "ratio's sd",
        "disturbed",
        "undecided",
        "device s",
    ]
    title = f"{contexts / seconds:.1f} contexts a second beside the jobs, unquiet: {', '.join(unquiet)}"
    rows = Rows(Terminal(width=120), title, *columns)
    for (steps, concurrent), figures in figures_by_case.items():
        rows.add(str(steps), "meanwhile" if concurrent else "-", str(len(figures.ratios)), *figures.figures())
    rows.end()


def _make(worker: Unquiet) -> None:
    """Creates and ends contexts for ever, and prints a line for each."""
    die_with_parent(os.getppid())
    worker.start_zygote()
    while True:
        runners = worker.runner_pool.make(1, lambda: False)
        with worker.block_context_creation(lambda: False):
            end(runners)
        print(READY, flush=True)


@contextmanager
def _other(unquiet: list[str]) -> Iterator[list[str]]:
    """Runs the other process after its first context; the list gets a line for each later one."""
    lines: list[str] = []
    command = [sys.executable, "-m", "benchmarks.contexts", "--make", "--beside", *unquiet]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline().strip() != READY:
                raise RuntimeError("the other process makes no contexts; what it said is above")
            yield lines
        finally:
            alive = process.poll() is None
            process.terminate()
            if process.stdout is not None:
                lines += [line for line in process.stdout if line.strip() == READY]
            if not alive:
                raise RuntimeError("the other process has ended too soon; what it said is above")


if __name__ == "__main__":
    sys.exit(main())
