"""`python -m benchmarks.device_seconds`: how long a small job holds the device, and which functions take that time.

Runs the jobs of one worker, one after the other. A function's time includes its callees; its waits are a runner's time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.jobs import groups
from benchmarks.timing import judged
from benchmarks.timing_cases import spin
from domain.budget import Budget
from domain.cases.case import Case
from domain.paths import ROOT
from domain.request import Request
from domain.result import Report
from stack.terminal import Terminal
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext

LIMIT_S = 240.0
"""Time after which no further job of a training begins, in s, so that the benchmark ends within five minutes."""
LEAST_MS, DEPTH = 1.0, 9
HOLDING = ("tasks/evaluation/judging.py: judge", "tasks/evaluation/inspection.py: inspect")
"""Functions that a job calls inside the device's lease."""
SOFTMAX = """
class {name}(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs(rows=1024):
    return [torch.randn(rows, 1024)]
"""
Function = tuple[str, int, str]

CASES = [(operation, budget) for operation in ("evaluate", "compare") for budget in ("quick", "default")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_seconds", description=__doc__)
    parser.add_argument("--jobs", type=int, default=8, help="of each kind, after one that warms up")
    parser.add_argument(
        "--steps", type=int, help="raw kernels of so many steps instead of softmax: 45 µs at 5000, on a GPU"
    )
    parser.add_argument("--groups", type=int, metavar="N", help="instead, N jobs of a training, by kernel type")
    parser.add_argument(
        "--cases", type=int, metavar="N", help="also comparisons of softmax for N cases (docs/adr/0038)"
    )
    parser.add_argument("--functions", action="store_true", help="also what of the referee takes that, by who calls it")
    options = parser.parse_args()
    console = Terminal(columns=160)
    held = Table(
        "job", "budget", "device s", "min to max", "all s", "rounds", "calls a window", "time µs", "relative CI"
    )
    functions = Table("job", "budget", "function", "calls a job", "ms a job")
    worker = WorkerContext()
    try:
        if options.groups:
            console.print(_group_table(group_reports(worker, options.groups)))
            return 0
        for operation, budget, cases in [(*one, 0) for one in CASES] + [
            ("compare", budget, options.cases) for budget in ("quick", "default") if options.cases
        ]:
            profile = cProfile.Profile() if options.functions else None  # Profiling makes the referee slower.
            reports, seconds = _jobs(worker, operation, budget, options.jobs, profile, *_kernels(options.steps), cases)
            held.add_row(f"{operation}, {cases} cases" if cases else operation, budget, *_figures(reports, seconds))
            for row in _tree(profile, options.jobs) if profile is not None else ():
                functions.add_row(operation, budget, *row)
    finally:
        worker.close()
    console.print(*([held, functions] if options.functions else [held]))
    return 0


def group_reports(worker: WorkerContext, count: int) -> dict[str, list[Report]]:
    """Reports of as many jobs of a training (`benchmarks.jobs.groups`) as fit into LIMIT_S, by kernel type."""
    until, reports = time.monotonic() + LIMIT_S, defaultdict[str, list[Report]](list)
    effort = Budget.QUICK.effort
    options = {"budget": "quick", "num_trials": effort.num_trials, "target_precision": effort.target_precision}
    for body in groups(count, gpu=worker.device.is_cuda):
        wire = {"kernel": body["custom_kernel"], "reference": body["ref_kernel"], "timeout": 120, **options}
        reports[wire["kernel"]["kernel_type"]].append(run(Request.from_wire(wire), worker))
        worker.refill_pool()
        if time.monotonic() > until:
            break
    return reports


def _group_table(by_type: dict[str, list[Report]]) -> Table:
    table = Table("kernel type", "verdicts", "warm references", "device s", "less windows s")
    for name, reports in by_type.items():
        held = [report.device for report in reports if report.device.held_s]
        beyond = [device.held_s - device.windows_s for device in held]
        verdicts = Counter(report.outcome.status.value for report in reports)
        medians = (f"{statistics.median(each):.2f}" for each in ([device.held_s for device in held], beyond) if each)
        warm = sum(device.reference_runner == "warm" for device in held)
        table.add_row(name, ", ".join(f"{count} {status}" for status, count in verdicts.items()), str(warm), *medians)
    return table


def _kernels(steps: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A candidate and its reference."""
    if steps is not None:
        return spin(steps), spin(steps)
    sources = (SOFTMAX.format(name=name) for name in ("ModelNew", "Model"))
    candidate, reference = ({"kernel_type": "torch", "source_code": source} for source in sources)
    return candidate, reference


def _jobs(
    worker: WorkerContext,
    operation: str,
    budget: str,
    count: int,
    profile: cProfile.Profile | None,
    kernel: dict[str, Any],
    reference: dict[str, Any],
    cases: int,
) -> tuple[list[Report], list[float]]:
    effort = Budget(budget).effort
    options_of_job: dict[str, Any] = {
        "budget": budget,
        "num_trials": effort.num_trials,
        "target_precision": effort.target_precision,
    }
    if cases:
        options_of_job["cases"] = [Case(f"{rows}", {"rows": rows}).to_wire() for rows in range(1024, 1024 + cases)]
    against = reference if operation == "compare" else None
    judged(worker, kernel, against, **options_of_job)
    reports, seconds = [], []
    for _ in range(count):
        began = time.monotonic()
        with profile if profile is not None else nullcontext():
            reports.append(judged(worker, kernel, against, **options_of_job))
        seconds.append(time.monotonic() - began)
    return reports, seconds


def _figures(reports: list[Report], seconds: list[float]) -> Iterator[str]:
    held = [report.device.held_s for report in reports]
    timings = [report.outcome.timing for report in reports if report.outcome.timing is not None]
    yield f"{statistics.median(held):.2f}"
    yield f"{min(held):.2f} to {max(held):.2f}"
    yield f"{statistics.median(seconds):.2f}"
    yield f"{statistics.median(timing.windows for timing in timings):g}"
    yield f"{statistics.median(timing.calls_per_window for timing in timings):g}"
    yield f"{statistics.median(timing.latency_ms for timing in timings) * 1e3:.2f}"
    yield f"{statistics.median(timing.relative_ci or 1.0 for timing in timings):.1%}"


def _tree(profile: cProfile.Profile, jobs: int) -> Iterator[tuple[str, str, str]]:
    """Functions that hold the device, as a call tree: calls and milliseconds a job, callees included.

    A profile has each caller's share of a function, but not of the function's callees: those are divided in proportion.
    """
    stats: Any = pstats.Stats(profile)
    callees: dict[Function, list[tuple[float, int, Function]]] = defaultdict(list)
    for function, (_, _, _, _, callers) in stats.stats.items():
        for caller, (_, calls, _, spent_s) in callers.items():
            callees[caller].append((spent_s, calls, function))

    def below(function: Function, share: float, depth: int) -> Iterator[tuple[str, str, str]]:
        for spent_s, calls, callee in sorted(callees[function], reverse=True):
            ms = share * spent_s / jobs * 1e3
            if ms < LEAST_MS or depth > DEPTH:
                return
            yield "  " * depth + _named(callee), f"{share * calls / jobs:.1f}", f"{ms:.1f}"
            whole = stats.stats[callee][3]
            yield from below(callee, share * spent_s / whole if whole else 0.0, depth + 1)

    for root, (_, calls, _, spent_s, _) in stats.stats.items():
        if _named(root) in HOLDING:
            yield _named(root), f"{calls / jobs:.1f}", f"{spent_s / jobs * 1e3:.1f}"
            yield from below(root, 1.0, 1)


def _named(function: Function) -> str:
    file, _, name = function
    inside = Path(file).is_relative_to(ROOT) and ".venv" not in file
    return f"{Path(file).relative_to(ROOT)}: {name}" if inside else f"{Path(file).name}: {name}".removeprefix("~: ")


if __name__ == "__main__":
    raise SystemExit(main())
