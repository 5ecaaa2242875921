"""`python -m benchmarks.timing`: our times against others', against themselves, and against a slightly slower twin."""

from __future__ import annotations

import argparse
import math
import statistics
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.table import Table

from benchmarks.timing_cases import CASES, Case, spin
from domain.budget import Budget
from domain.request import Request
from domain.result import Report, Status, Timing
from stack.terminal import Terminal
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext

HAND_WINDOWS = 9
HOLD_CYCLES = 20_000_000
"""About 10 ms."""
SLOWER = 1.02
LONG_S = 2.0
"""Of the device, within which a comparison should tell a slower twin."""
TWIN_JOBS = 3
ITSELF, TWIN = "itself", "twin"
SPINS = (400, 5_000, 20_000)
"""Steps of about 6, 45 and 170 µs on an H200."""
SHORT = 170
"""Of about 4 µs there: what processes differ by is a percent of that, so that it repeats at `precise` alone."""


@dataclass(frozen=True)
class Asked:
    """How many jobs of which budget, of how many steps where others than the usual kernels are wanted, and what each is
    compared with."""

    jobs: int
    budget: str
    steps: tuple[int, ...] = ()
    against: tuple[str, ...] = (ITSELF, TWIN)


def judged(
    bench: WorkerContext, kernel: dict[str, Any], reference: dict[str, Any] | None = None, **asked: Any
) -> Report:
    """One job; raises RuntimeError when the kernel does not pass."""
    wire = {"kernel": kernel, "reference": reference, "num_trials": 100, "timeout": 120, **asked}
    report = run(Request.from_wire(wire), bench, lambda stage: None, lambda: False)
    if report.outcome.status is not Status.PASSED or report.outcome.timing is None:
        raise RuntimeError(f"{report.outcome.status}: {report.outcome.message}")
    return report


def by_hand(case: Case) -> float:
    """Back-to-back calls on inputs of their own after a flush, one pair of events around all, behind a sleep; in ms.

    The sleep is made longer until every call is queued before it ends: else the host's time would be measured.
    """
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    inputs = [case.inputs() for _ in range(case.calls)]
    case.function(inputs[0])
    taken: list[float] = []
    hold = HOLD_CYCLES
    while len(taken) < HAND_WINDOWS:
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(hold)  # type: ignore[no-untyped-call]
        start.record()
        kept = [case.function(one) for one in inputs]
        end.record()
        waited = start.query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        del kept
        if waited:
            hold *= 2
        else:
            taken.append(float(start.elapsed_time(end)) / case.calls)
    return statistics.median(taken)


def do_bench(case: Case) -> float:
    """triton.testing.do_bench's median: events around each single call, its own cost included; in ms."""
    from triton.testing import do_bench as bench

    inputs = case.inputs()
    return float(bench(lambda: case.function(inputs), return_mode="median"))


class Rows:
    """A table that prints every row as it comes, the last one of as many jobs as there were when it was interrupted: a
    run that is cut short has not been for nothing."""

    def __init__(self, console: Terminal, title: str, *columns: str) -> None:
        self._console = console
        self._table = Table(*columns, title=title)
        self._columns = columns

    def add(self, *cells: str) -> None:
        self._table.add_row(*cells)
        self._console.print(" · ".join(f"{name} {cell}" for name, cell in zip(self._columns, cells, strict=True)))

    def end(self) -> None:
        self._console.print(self._table)


def agreement(bench: WorkerContext, console: Terminal) -> None:
    """Ours against two others, and whether it is within 2 % + 0.5 µs of the first."""
    rows = Rows(console, "Agreement", "kernel", "ours µs", "by hand µs", "difference", "within", "do_bench µs")
    for case in CASES:
        timing = judged(bench, case.source()).outcome.timing
        hand, usual = by_hand(case), do_bench(case)
        torch.cuda.empty_cache()
        ours = timing.trusted_ms if timing else 0.0
        within = abs(ours - hand) <= 0.02 * hand + 0.5e-3
        rows.add(
            case.name,
            *(f"{ms * 1e3:.2f}" for ms in (ours, hand)),
            f"{ours / hand - 1:+.1%}",
            "yes" if within else "no",
            f"{usual * 1e3:.2f}",
        )
    rows.end()


def repeatability(bench: WorkerContext, console: Terminal, asked: Asked, precision: float) -> None:
    """The same kernel in separate jobs, each in processes of its own."""
    columns = ("kernel", "jobs", "median µs", "(p95 - p5) / median", "sd", "of processes", "sure to", "device s")
    rows = Rows(console, f"Repeatability, {asked.budget}", *columns)
    kernels = {f"spin {steps}": spin(steps) for steps in asked.steps or (SHORT, *SPINS)}
    if not asked.steps:
        kernels |= {case.name: case.source() for case in CASES if case.name in ("multiply 1 k", "product 2048² bf16")}
    for name, kernel in kernels.items():
        reports: list[Report] = []
        try:
            for _ in range(asked.jobs):
                reports.append(judged(bench, kernel, precision=precision, budget=asked.budget))
        finally:
            if len(reports) > 1:
                rows.add(name, *_repeated(reports))
    rows.end()


def _repeated(reports: list[Report]) -> list[str]:
    found = [report.outcome.timing for report in reports if report.outcome.timing]
    times = sorted(timing.trusted_ms for timing in found)
    low, high = times[int(0.05 * (len(times) - 1))], times[round(0.95 * (len(times) - 1))]
    middle = statistics.median(times)
    return [
        str(len(reports)),
        f"{middle * 1e3:.3f}",
        *(f"{part:.2%}" for part in ((high - low) / middle, statistics.stdev(times) / middle)),
        _within([timing.process_ms for timing in found]),
        f"{statistics.median(timing.precision or 0.0 for timing in found):.2%}",
        f"{statistics.median(report.environment['device_seconds'] for report in reports):.2f}",
    ]


def slower_twin(bench: WorkerContext, steps: int) -> int:
    """The steps of a twin that takes SLOWER times as long: a part of a short kernel's time is that of its launch."""

    def takes_ms(count: int) -> float:
        timings = [judged(bench, spin(count)).outcome.timing for _ in range(TWIN_JOBS)]
        return statistics.median(timing.trusted_ms for timing in timings if timing)

    once, twice = takes_ms(steps), takes_ms(2 * steps)
    return steps + round((SLOWER - 1) * once * steps / (twice - once))


def comparisons(bench: WorkerContext, console: Terminal, asked: Asked) -> None:
    """A kernel with itself, and with a twin that takes 2 % longer."""
    columns = (
        *("kernel", "against", "slower", "faster", "not told apart"),
        *("ratio", "its sd", "of pairs", "device s", "at most", f"over {LONG_S:g} s"),
    )
    rows = Rows(console, f"A/A and A/B, {asked.budget}", *columns)
    product = next(case for case in CASES if case.name == "product 2048² bf16").source()
    pairs = [] if asked.steps else [("product 2048² bf16", ITSELF, product, product)]
    for steps in asked.steps or SPINS:
        if ITSELF in asked.against:
            pairs.append((f"spin {steps}", ITSELF, spin(steps), spin(steps)))
        if TWIN in asked.against:
            twin = slower_twin(bench, steps)
            pairs.append((f"spin {steps}", f"spin {twin}", spin(steps), spin(twin)))
    for name, against, reference, candidate in pairs:
        reports: list[Report] = []
        try:
            for _ in range(asked.jobs):
                reports.append(judged(bench, candidate, reference, budget=asked.budget))
        finally:
            if len(reports) > 1:
                rows.add(name, against, *_compared(reports))
    rows.end()


def _compared(reports: list[Report]) -> list[str]:
    found = [report.speedup for report in reports if report.speedup is not None]
    verdicts = [speedup.verdict for speedup in found]
    spent = [report.environment["device_seconds"] for report in reports]
    return [
        *(str(verdicts.count(verdict)) for verdict in ("slower", "faster", "not_distinguishable")),
        f"{statistics.median(speedup.ratio for speedup in found):.4f}",
        f"{statistics.stdev(speedup.ratio for speedup in found):.2%}",
        _within([_ratios(report) for report in reports]),
        f"{statistics.median(spent):.2f}",
        f"{max(spent):.2f}",
        str(sum(seconds > LONG_S for seconds in spent)),
    ]


def _ratios(report: Report) -> list[float]:
    """Of each pair of processes."""
    sides = [outcome.timing for outcome in (report.reference, report.outcome) if outcome is not None]
    theirs, ours = (timing.process_ms if timing is not None else [] for timing in sides)
    return [reference / candidate for reference, candidate in zip(theirs, ours, strict=True)]


def _within(jobs: list[list[float]]) -> str:
    """The standard deviation of a job's processes, relative to their mean, over all jobs; nothing of single ones."""
    several = [each for each in jobs if len(each) > 1]
    if not several:
        return ""
    shares = [statistics.variance(each) / statistics.mean(each) ** 2 for each in several]
    return f"{math.sqrt(statistics.mean(shares)):.2%}"


def counted(bench: WorkerContext, console: Terminal, jobs: int) -> None:
    """The same kernel with its counters read afterwards, and without: whether the times are further apart than both
    intervals; and two jobs without, for what they differ by anyway."""
    rows = Rows(console, "With and without device metrics", "kernel", "jobs", "apart", "two plain apart", "most, %")
    kernel = spin(SPINS[1])
    metrics = {"level": "basic", "metrics": []}
    apart, plainly_apart, most = 0, 0, 0.0
    for _ in range(jobs):
        plain, other = (judged(bench, kernel).outcome.timing for _ in range(2))
        report = judged(bench, kernel, device_metrics=metrics)
        if report.device_metrics is None or report.device_metrics["status"] != "measured":
            raise RuntimeError(f"no device metrics: {report.device_metrics}")
        found = report.outcome.timing
        if plain is None or other is None or found is None:
            raise RuntimeError("a job without a time")
        apart += _apart(plain, found)
        plainly_apart += _apart(plain, other)
        most = max(most, abs(found.trusted_ms / plain.trusted_ms - 1))
    rows.add(f"spin {SPINS[1]}", str(jobs), str(apart), str(plainly_apart), f"{most:.2%}")
    rows.end()


def _apart(one: Timing, other: Timing) -> bool:
    """Whether two times differ by more than both intervals, the clock's resolution included."""
    reach = sum((each.precision or 0.0) * each.trusted_ms + each.resolution_us / 1e3 for each in (one, other))
    return abs(one.trusted_ms - other.trusted_ms) > reach


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing", description=__doc__)
    parser.add_argument("tables", nargs="*", default=["agreement", "repeatability", "comparisons"])
    parser.add_argument("--jobs", type=int, default=30, help="jobs of each repetition")
    parser.add_argument("--precision", type=float, default=0.003, help="asked for where a time is to repeat")
    parser.add_argument("--budget", default=Budget.DEFAULT.value, choices=[one.value for one in Budget])
    parser.add_argument("--steps", type=int, nargs="*", help=f"spinning kernels alone, of so many steps ({SPINS})")
    both = (ITSELF, TWIN)
    parser.add_argument("--against", nargs="+", default=both, choices=both, help="what kernels are compared with")
    options = parser.parse_args()
    asked = Asked(options.jobs, options.budget, tuple(options.steps or ()), tuple(options.against))
    console = Terminal(width=120)
    bench = WorkerContext()
    try:
        if not bench.target.is_cuda:
            raise SystemExit("needs an NVIDIA GPU: the host's clock has nothing to be compared with")
        judged(bench, spin(SHORT))  # The first job on a card that nobody has measured yet measures its rates too.
        if "agreement" in options.tables:
            agreement(bench, console)
        if "repeatability" in options.tables:
            repeatability(bench, console, asked, options.precision)
            if not (asked.steps or asked.budget == Budget.PRECISE):
                short = replace(asked, budget=Budget.PRECISE.value, steps=(SHORT,))
                repeatability(bench, console, short, options.precision)
        if "comparisons" in options.tables:
            comparisons(bench, console, asked)
        if "counted" in options.tables:
            counted(bench, console, options.jobs)
    finally:
        bench.close()


if __name__ == "__main__":
    main()
