"""`python -m benchmarks.stages [--jobs N]`: what of a job's time on the device is no window, by stage and kernel type.

The figures come from each job's timeline, which uses the service's own clock. The jobs are those of a training
(`benchmarks.jobs.groups`), sent as one batch to a service of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from rich.table import Table

from benchmarks.latency import Latency
from domain.job import Stage
from domain.settings import settings
from stack.redis_server import free_port
from stack.terminal import Terminal

LIMIT_S = 240.0
"""Maximum time of the batch, in s, so that the benchmark ends within five minutes."""
ON_DEVICE = (Stage.LOAD, Stage.VALIDATE, Stage.TIME)


def seconds_by_stage(job: Mapping[str, Any]) -> dict[Stage, float]:
    """Seconds in each stage of an ended job (`GET /job`), without the last, its end.

    A job that began several times was in its stages several times.
    """
    spent: dict[Stage, float] = defaultdict(float)
    steps = [(Stage(step["stage"]), float(step["at"])) for step in job["timeline"]]
    for (stage, began), (_, ended) in pairwise(steps):
        spent[stage] += ended - began
    return dict(spent)


def by_stage(jobs: Iterable[Mapping[str, Any]]) -> dict[Stage, Latency]:
    """Latencies of each stage over the jobs that entered it, in the order of stages."""
    samples: dict[Stage, list[float]] = defaultdict(list)
    for job in jobs:
        for stage, seconds in seconds_by_stage(job).items():
            samples[stage].append(seconds)
    return {stage: Latency.of(samples[stage]) for stage in Stage if samples[stage]}


def computing_seconds(job: Mapping[str, Any]) -> float:
    """Seconds that the kernels of a completed job computed in its timing windows, both sides together."""
    result = job.get("result") or {}
    timings = [(result.get(side) or {}).get("timing") for side in ("kernel_exec_result", "ref_result")]
    return float(sum(timing["calls"] * timing["latency_ms"] / 1e3 for timing in timings if timing))


def device_seconds(job: Mapping[str, Any]) -> float:
    """Seconds for which a completed job held its device; 0 without a result."""
    return _of_environment(job, "device_seconds")


def window_seconds(job: Mapping[str, Any]) -> float:
    """Seconds of a completed job's timing windows, with queueing of calls and preparation; 0 without a result."""
    return _of_environment(job, "window_seconds")


def _of_environment(job: Mapping[str, Any], name: str) -> float:
    environment = (job.get("result") or {}).get("environment") or {}
    return float(environment.get(name) or 0.0)


@dataclasses.dataclass(frozen=True)
class DeviceBudget:
    """Medians of the jobs of one kernel type, in ms.

    `beyond_windows`: the time for which a job held the device, less its windows. `stages`: its stages on the device.
    """

    jobs: int
    warm: int
    held: float
    beyond_windows: float
    stages: dict[Stage, float]


def device_budgets(jobs: Iterable[Mapping[str, Any]]) -> dict[str, DeviceBudget]:
    """The budget of each kernel type, over the jobs that held a device; `warm` counts those with a warm reference."""
    by_type: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for job in jobs:
        if device_seconds(job):
            by_type[job["kernel_type"]].append(job)
    return {name: _budget(ended) for name, ended in sorted(by_type.items())}


def _budget(jobs: list[Mapping[str, Any]]) -> DeviceBudget:
    stages = by_stage(jobs)
    held = Latency.of([device_seconds(job) for job in jobs])
    beyond = Latency.of([device_seconds(job) - window_seconds(job) for job in jobs])
    warm = sum(job["result"]["environment"].get("reference_runner") == "warm" for job in jobs)
    return DeviceBudget(
        len(jobs), warm, held.p50, beyond.p50, {stage: stages[stage].p50 for stage in ON_DEVICE if stage in stages}
    )


def table(budgets: Mapping[str, DeviceBudget]) -> Table:
    """The budgets for a terminal."""
    result = Table(
        "kernel type", "jobs", "warm", "held ms", "held less windows ms", *(f"{each} ms" for each in ON_DEVICE)
    )
    for name, budget in budgets.items():
        stages = (f"{budget.stages[stage]:.0f}" if stage in budget.stages else "" for stage in ON_DEVICE)
        figures = (str(budget.jobs), str(budget.warm), f"{budget.held:.0f}", f"{budget.beyond_windows:.0f}")
        result.add_row(name, *figures, *stages)
    return result


def main() -> int:
    from benchmarks import jobs, overhead  # They import this module.

    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--jobs", type=int, default=4 * jobs.GROUP)
    parser.add_argument("--budget", default="quick")
    options = parser.parse_args()
    console = Terminal(soft_wrap=True)
    with overhead.service(dataclasses.replace(settings().private(), port=free_port())) as (stack, client):
        overhead.warm_up(stack, client)
        sent = jobs.groups(options.jobs, gpu=bool(stack.gpus), budget=options.budget)
        result = overhead.throughput(stack, client, sent, LIMIT_S)
    console.print(f"{result.jobs} of {result.sent} jobs, {result.per_second:.2f} a second: {result.verdicts}")
    console.print(table(result.budgets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
