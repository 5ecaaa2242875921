"""`python -m benchmarks.timing`: the service's times against other methods, themselves, and a slower twin."""

from __future__ import annotations

import argparse
import math
import statistics
import time
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
"""Device time, in s, within which a comparison should distinguish a slower twin."""
TWIN_JOBS = 3
ITSELF, TWIN = "itself", "twin"
SPINS = (400, 5_000, 20_000)
"""Steps of about 6, 45 and 170 µs on an H200."""
REUSED_JOBS = 64
"""Maximum number of jobs of one context in the table of used contexts."""
SHORT = 170
"""About 4 µs there: processes differ by a percent of that, so only `precise` gives repeatable times."""


@dataclass(frozen=True)
class Options:
    """The jobs of a table.

    - `jobs`: number of jobs of each kernel; `budget`: their budget.
    - `steps`: lengths of the spinning kernels; empty for the usual kernels.
    - `against`: what each kernel is compared with.
    """

    jobs: int
    budget: str
    steps: tuple[int, ...] = ()
    against: tuple[str, ...] = (ITSELF, TWIN)


def judged(
    worker: WorkerContext, kernel: dict[str, Any], reference: dict[str, Any] | None = None, **options: Any
) -> Report:
    """Judges one kernel; raises RuntimeError if it does not pass."""
    wire = {"kernel": kernel, "reference": reference, "num_trials": 100, "timeout": 120, **options}
    report = run(Request.from_wire(wire), worker)
    if report.outcome.status is not Status.PASSED or report.outcome.timing is None:
        raise RuntimeError(f"{report.outcome.status}: {report.outcome.message}")
    return report


def by_hand(case: Case) -> float:
    """Time of back-to-back calls on separate inputs after a flush, in ms, with one pair of events around all of them.

    The calls queue behind a sleep, which grows until all calls are queued before it ends: otherwise the host's time
    would be measured.
    """
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    inputs = [case.inputs() for _ in range(case.calls)]
    case.function(inputs[0])
    times_ms: list[float] = []
    hold = HOLD_CYCLES
    while len(times_ms) < HAND_WINDOWS:
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(hold)  # type: ignore[no-untyped-call]
        start.record()
        results = [case.function(one) for one in inputs]
        end.record()
        waited = start.query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        del results
        if waited:
            hold *= 2
        else:
            times_ms.append(float(start.elapsed_time(end)) / case.calls)
    return statistics.median(times_ms)


def do_bench(case: Case) -> float:
    """The median of triton.testing.do_bench in ms: events around each single call, with their own cost."""
    from triton.testing import do_bench as worker

    inputs = case.inputs()
    return float(worker(lambda: case.function(inputs), return_mode="median"))


class Rows:
    """A table that also prints each row at once, so that an interrupted run shows its results."""

    def __init__(self, console: Terminal, title: str, *columns: str) -> None:
        self._console = console
        self._table = Table(*columns, title=title)
        self._columns = columns

    def add(self, *cells: str) -> None:
        self._table.add_row(*cells)
        self._console.print(" · ".join(f"{name} {cell}" for name, cell in zip(self._columns, cells, strict=True)))

    def end(self) -> None:
        self._console.print(self._table)


def agreement(worker: WorkerContext, console: Terminal) -> None:
    """The service's times against two other methods, and whether they are within 2 % + 0.5 µs of the first."""
    rows = Rows(console, "Agreement", "kernel", "ours µs", "by hand µs", "difference", "within", "do_bench µs")
    for case in CASES:
        timing = judged(worker, case.source()).outcome.timing
        hand, usual = by_hand(case), do_bench(case)
        torch.cuda.empty_cache()
        service_ms = timing.latency_ms if timing else 0.0
        within = abs(service_ms - hand) <= 0.02 * hand + 0.5e-3
        rows.add(
            case.name,
            *(f"{ms * 1e3:.2f}" for ms in (service_ms, hand)),
            f"{service_ms / hand - 1:+.1%}",
            "yes" if within else "no",
            f"{usual * 1e3:.2f}",
        )
    rows.end()


def repeatability(worker: WorkerContext, console: Terminal, options: Options, target_precision: float) -> None:
    """The same kernel in separate jobs, each with its own processes."""
    columns = ("kernel", "jobs", "median µs", "(p95 - p5) / median", "sd", "of processes", "sure to", "device s")
    rows = Rows(console, f"Repeatability, {options.budget}", *columns)
    kernels = {f"spin {steps}": spin(steps) for steps in options.steps or (SHORT, *SPINS)}
    if not options.steps:
        kernels |= {case.name: case.source() for case in CASES if case.name in ("multiply 1 k", "product 2048² bf16")}
    for name, kernel in kernels.items():
        reports: list[Report] = []
        try:
            for _ in range(options.jobs):
                reports.append(judged(worker, kernel, target_precision=target_precision, budget=options.budget))
        finally:
            if len(reports) > 1:
                rows.add(name, *_repeated(reports))
    rows.end()


def _repeated(reports: list[Report]) -> list[str]:
    timings = [report.outcome.timing for report in reports if report.outcome.timing]
    times = sorted(timing.latency_ms for timing in timings)
    low, high = times[int(0.05 * (len(times) - 1))], times[round(0.95 * (len(times) - 1))]
    middle = statistics.median(times)
    return [
        str(len(reports)),
        f"{middle * 1e3:.3f}",
        *(f"{part:.2%}" for part in ((high - low) / middle, statistics.stdev(times) / middle)),
        spread_within_jobs([timing.per_process_ms for timing in timings]),
        f"{statistics.median(timing.relative_ci or 0.0 for timing in timings):.2%}",
        f"{statistics.median(report.device.held_s for report in reports):.2f}",
    ]


def slower_twin(worker: WorkerContext, steps: int) -> int:
    """Steps of a twin that takes SLOWER times as long; launching takes part of a short kernel's time."""

    def takes_ms(count: int) -> float:
        timings = [judged(worker, spin(count)).outcome.timing for _ in range(TWIN_JOBS)]
        return statistics.median(timing.latency_ms for timing in timings if timing)

    once, twice = takes_ms(steps), takes_ms(2 * steps)
    return steps + round((SLOWER - 1) * once * steps / (twice - once))


def comparisons(worker: WorkerContext, console: Terminal, options: Options) -> None:
    """A kernel against itself, and against a twin that takes 2 % longer."""
    columns = (
        *("kernel", "against", "slower", "faster", "not told apart"),
        *("ratio", "its sd", "of pairs", "device s", "at most", f"over {LONG_S:g} s"),
    )
    rows = Rows(console, f"A/A and A/B, {options.budget}", *columns)
    product = next(case for case in CASES if case.name == "product 2048² bf16").source()
    pairs = [] if options.steps else [("product 2048² bf16", ITSELF, product, product)]
    for steps in options.steps or SPINS:
        if ITSELF in options.against:
            pairs.append((f"spin {steps}", ITSELF, spin(steps), spin(steps)))
        if TWIN in options.against:
            twin = slower_twin(worker, steps)
            pairs.append((f"spin {steps}", f"spin {twin}", spin(steps), spin(twin)))
    for name, against, reference, candidate in pairs:
        reports: list[Report] = []
        try:
            for _ in range(options.jobs):
                reports.append(judged(worker, candidate, reference, budget=options.budget))
        finally:
            if len(reports) > 1:
                rows.add(name, against, *_compared(reports))
    rows.end()


def _compared(reports: list[Report]) -> list[str]:
    speedups = [report.speedup for report in reports if report.speedup is not None]
    verdicts = [speedup.verdict for speedup in speedups]
    spent = [report.device.held_s for report in reports]
    return [
        *(str(verdicts.count(verdict)) for verdict in ("slower", "faster", "not_distinguishable")),
        f"{statistics.median(speedup.ratio for speedup in speedups):.4f}",
        f"{statistics.stdev(speedup.ratio for speedup in speedups):.2%}",
        spread_within_jobs([_ratios(report) for report in reports]),
        f"{statistics.median(spent):.2f}",
        f"{max(spent):.2f}",
        str(sum(seconds > LONG_S for seconds in spent)),
    ]


def _ratios(report: Report) -> list[float]:
    """The ratio of each pair of processes."""
    sides = [outcome.timing for outcome in (report.reference, report.outcome) if outcome is not None]
    reference_ms, candidate_ms = (timing.per_process_ms if timing is not None else [] for timing in sides)
    return [reference / candidate for reference, candidate in zip(reference_ms, candidate_ms, strict=True)]


def spread_within_jobs(jobs: list[list[float]]) -> str:
    """The standard deviation between a job's processes, relative to their mean, over all jobs with several."""
    several = [each for each in jobs if len(each) > 1]
    if not several:
        return ""
    shares = [statistics.variance(each) / statistics.mean(each) ** 2 for each in several]
    return f"{math.sqrt(statistics.mean(shares)):.2%}"


def reuse(worker: WorkerContext, console: Terminal, options: Options) -> None:
    """Compares the same jobs in fresh and in used contexts: the seconds gained, and whether the times differ.

    A kernel alone, against itself, and against a twin that takes 5 % longer. A job's seconds include making contexts
    for the next one.
    """
    console.print(f"kernels reach their process's host memory: {worker.device.reaches_host_memory}")
    columns = ("kernel", "contexts", "jobs", "used", "s a job", "device s", "less windows", "µs", "its sd", "ratio")
    rows = Rows(console, f"Contexts used again, {options.budget}", *columns, "its sd", "slower", "faster")
    steps = (options.steps or SPINS[1:2])[0]
    pairs = {
        "alone": (spin(steps), None),
        "itself": (spin(steps), spin(steps)),
        "5 % slower": (spin(round(1.06 * steps)), spin(steps)),
    }
    candidate = worker.used_candidate
    usual = candidate.max_jobs
    try:
        for name, (kernel, reference) in pairs.items():
            for contexts, max_jobs in (("fresh", 1), ("used", REUSED_JOBS)):
                worker.teardown.join()
                candidate.close()
                candidate.max_jobs = max_jobs
                reports: list[Report] = []
                judged(worker, kernel, reference, budget=options.budget)
                began = time.monotonic()
                for _ in range(options.jobs):
                    reports.append(judged(worker, kernel, reference, budget=options.budget))
                    worker.refill_pool()
                rows.add(name, contexts, *_reused(reports, (time.monotonic() - began) / options.jobs))
    finally:
        candidate.max_jobs = usual
        worker.teardown.join()
        candidate.close()
    rows.end()


def _reused(reports: list[Report], seconds: float) -> list[str]:
    times_us = [report.outcome.timing.latency_ms * 1e3 for report in reports if report.outcome.timing]
    speedups = [report.speedup for report in reports if report.speedup is not None]
    ratios = [speedup.ratio for speedup in speedups]
    verdicts = [speedup.verdict for speedup in speedups]
    held_s = [report.device.held_s for report in reports]
    beyond_s = [report.device.held_s - report.device.windows_s for report in reports]
    return [
        str(len(reports)),
        str(sum(report.device.isolation == {"process": "used"} for report in reports)),
        *(f"{each:.3f}" for each in (seconds, statistics.median(held_s), statistics.median(beyond_s))),
        f"{statistics.median(times_us):.3f}",
        f"{statistics.stdev(times_us) / statistics.mean(times_us):.2%}",
        *((f"{statistics.median(ratios):.4f}", f"{statistics.stdev(ratios):.2%}") if ratios else ("", "")),
        *(str(verdicts.count(verdict)) if ratios else "" for verdict in ("slower", "faster")),
    ]


def counted(worker: WorkerContext, console: Terminal, jobs: int) -> None:
    """Compares times of jobs with and without device metrics: how often they differ by more than both intervals.

    Two jobs without metrics show how often that happens anyway.
    """
    rows = Rows(console, "With and without device metrics", "kernel", "jobs", "apart", "two plain apart", "most, %")
    kernel = spin(SPINS[1])
    metrics = {"level": "basic", "metrics": []}
    different, plain_different, most = 0, 0, 0.0
    for _ in range(jobs):
        plain, other = (judged(worker, kernel).outcome.timing for _ in range(2))
        report = judged(worker, kernel, device_metrics=metrics)
        if report.device_metrics is None or report.device_metrics["status"] != "measured":
            raise RuntimeError(f"no device metrics: {report.device_metrics}")
        timing = report.outcome.timing
        if plain is None or other is None or timing is None:
            raise RuntimeError("a job without a time")
        different += _differ(plain, timing)
        plain_different += _differ(plain, other)
        most = max(most, abs(timing.latency_ms / plain.latency_ms - 1))
    rows.add(f"spin {SPINS[1]}", str(jobs), str(different), str(plain_different), f"{most:.2%}")
    rows.end()


def _differ(one: Timing, other: Timing) -> bool:
    """Whether two times differ by more than both intervals and the clock's resolution."""
    reach = sum((each.relative_ci or 0.0) * each.latency_ms + each.resolution_us / 1e3 for each in (one, other))
    return abs(one.latency_ms - other.latency_ms) > reach


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing", description=__doc__)
    parser.add_argument("tables", nargs="*", default=["agreement", "repeatability", "comparisons"])
    parser.add_argument("--jobs", type=int, default=30, help="jobs of each repetition")
    parser.add_argument("--target-precision", type=float, default=0.003, help="asked for where a time is to repeat")
    parser.add_argument("--budget", default=Budget.DEFAULT.value, choices=[one.value for one in Budget])
    parser.add_argument("--steps", type=int, nargs="*", help=f"spinning kernels alone, of so many steps ({SPINS})")
    both = (ITSELF, TWIN)
    parser.add_argument("--against", nargs="+", default=both, choices=both, help="what kernels are compared with")
    options = parser.parse_args()
    chosen = Options(options.jobs, options.budget, tuple(options.steps or ()), tuple(options.against))
    console = Terminal(width=120)
    worker = WorkerContext()
    try:
        if not worker.target.is_cuda:
            raise SystemExit("needs an NVIDIA GPU: the host's clock has nothing to be compared with")
        judged(worker, spin(SHORT))  # The first job on a new card also measures the card's rates.
        if "agreement" in options.tables:
            agreement(worker, console)
        if "repeatability" in options.tables:
            repeatability(worker, console, chosen, options.target_precision)
            if not (chosen.steps or chosen.budget == Budget.PRECISE):
                short = replace(chosen, budget=Budget.PRECISE.value, steps=(SHORT,))
                repeatability(worker, console, short, options.target_precision)
        if "comparisons" in options.tables:
            comparisons(worker, console, chosen)
        if "reuse" in options.tables:
            reuse(worker, console, chosen)
        if "counted" in options.tables:
            counted(worker, console, options.jobs)
    finally:
        worker.close()


if __name__ == "__main__":
    main()
