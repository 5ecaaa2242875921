"""`python -m benchmarks.contexts`: what windows cost beside another process that makes and ends contexts all the while.

A service's windows wait for that (`tasks.node.device_lease.quiet`); these do not, or for some of its steps only. In
turn: jobs with the device to themselves, and jobs beside the other process. Told are the times, which should not
differ, and how often a kernel was told apart from itself.
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
from domain.result import Report
from sandbox.isolation.rlimits import die_with_parent
from stack.terminal import Terminal
from tasks.runtime.runner_pool import end
from tasks.runtime.worker_context import WorkerContext

STEPS = (200, 400, 5_000)
"""Of about 4, 6 and 45 µs on an H200."""
TURNS = 2
MADE = "made"
DISTURBED = "disturbed from outside"
CREATION = ("opened", "libraries", "launches")
"""Of a context, in quiet each by itself (`tasks.runtime.runner_pool.RunnerPool.make`)."""
ENDED = "ended"


class Unquiet(WorkerContext):
    """A workbench that waits for nobody's windows in those steps of a context, one after the other."""

    def __init__(self, unquiet: list[str]) -> None:
        self._unquiet = unquiet
        self._next = itertools.cycle((*CREATION, ENDED))
        super().__init__()

    def block_context_creation(
        self, cancelled: Callable[[], bool], yields_s: float = 0.0
    ) -> AbstractContextManager[None]:
        return (
            nullcontext() if next(self._next) in self._unquiet else super().block_context_creation(cancelled, yields_s)
        )


@dataclass
class Seen:
    """Of jobs of one kind: a call's time, the ratio to itself, the seconds of the device."""

    times_us: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    device_s: list[float] = field(default_factory=list)
    told_apart: int = 0
    disturbed: int = 0
    undecided: int = 0

    def add(self, report: Report) -> None:
        timing, speedup = report.outcome.timing, report.speedup
        if timing is None or speedup is None:
            self.undecided += 1
            return
        self.times_us.append(timing.trusted_ms * 1e3)
        self.ratios.append(speedup.ratio)
        self.device_s.append(report.environment["device_seconds"])
        self.told_apart += speedup.verdict != "not_distinguishable"
        self.disturbed += any(DISTURBED in flag for flag in timing.flags)

    def figures(self) -> list[str]:
        """A row's cells behind the number of jobs."""
        counted = [str(self.disturbed), str(self.undecided)]
        if len(self.ratios) < 2:
            return ["-", "-", str(self.told_apart), "-", *counted, "-"]
        return [
            f"{statistics.median(self.times_us):.3f}",
            f"{statistics.stdev(self.times_us) / statistics.mean(self.times_us):.2%}",
            str(self.told_apart),
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
    bench = Unquiet(options.beside) if options.make else WorkerContext()
    try:
        if not bench.target.is_cuda:
            raise SystemExit("needs an NVIDIA GPU: there are no contexts without one")
        if isinstance(bench, Unquiet):
            _make(bench)
        else:
            _measure(bench, options.jobs, options.budget, options.beside)
    finally:
        bench.close()
    return 0


def _measure(bench: WorkerContext, jobs: int, budget: str, unquiet: list[str]) -> None:
    seen = {(steps, beside): Seen() for steps in STEPS for beside in (False, True)}
    contexts, seconds = 0, 0.0
    judged(bench, spin(STEPS[0]), spin(STEPS[0]), budget=budget)
    for _ in range(TURNS):
        for beside in (False, True):
            other: AbstractContextManager[list[str]] = _other(unquiet) if beside else nullcontext([])
            with other as made:
                began = time.monotonic()
                for steps in STEPS:
                    for _ in range(jobs):
                        seen[steps, beside].add(judged(bench, spin(steps), spin(steps), budget=budget))
                seconds += (time.monotonic() - began) if beside else 0.0
            contexts += len(made)
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
    said = f"{contexts / seconds:.1f} contexts a second beside the jobs, unquiet: {', '.join(unquiet)}"
    rows = Rows(Terminal(width=120), said, *columns)
    for (steps, beside), found in seen.items():
        rows.add(str(steps), "meanwhile" if beside else "-", str(len(found.ratios)), *found.figures())
    rows.end()


def _make(bench: Unquiet) -> None:
    """Contexts, one after the other, and a line for each."""
    die_with_parent(os.getppid())
    bench.start_zygote()
    while True:
        made = bench.runner_pool.make(1, lambda: False)
        with bench.block_context_creation(lambda: False):
            end(made)
        print(MADE, flush=True)


@contextmanager
def _other(unquiet: list[str]) -> Iterator[list[str]]:
    """The other process, once it has made its first context; in the list, when it is gone, a line for each since."""
    made: list[str] = []
    command = [sys.executable, "-m", "benchmarks.contexts", "--make", "--beside", *unquiet]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline().strip() != MADE:
                raise RuntimeError("the other process makes no contexts; what it said is above")
            yield made
        finally:
            alive = process.poll() is None
            process.terminate()
            if process.stdout is not None:
                made += [line for line in process.stdout if line.strip() == MADE]
            if not alive:
                raise RuntimeError("the other process has ended too soon; what it said is above")


if __name__ == "__main__":
    sys.exit(main())
