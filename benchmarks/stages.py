"""Where a job's time goes: its stages by the service's own clock, as its timeline tells them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from benchmarks.latency import Latency
from domain.job import Stage


def seconds_by_stage(job: Mapping[str, Any]) -> dict[Stage, float]:
    """Of an ended job's `GET /job`: how long it was in each stage that it entered, the last one, its end, left out.

    A job that was begun more than once has been in its stages more than once.
    """
    spent: dict[Stage, float] = defaultdict(float)
    steps = [(Stage(step["stage"]), float(step["at"])) for step in job["timeline"]]
    for (stage, began), (_, ended) in pairwise(steps):
        spent[stage] += ended - began
    return dict(spent)


def by_stage(jobs: Iterable[Mapping[str, Any]]) -> dict[Stage, Latency]:
    """Of several jobs, each stage's latency in the jobs that entered it, in the order of the stages."""
    samples: dict[Stage, list[float]] = defaultdict(list)
    for job in jobs:
        for stage, seconds in seconds_by_stage(job).items():
            samples[stage].append(seconds)
    return {stage: Latency.of(samples[stage]) for stage in Stage if samples[stage]}


def computing_seconds(job: Mapping[str, Any]) -> float:
    """Of a completed job: what its kernels computed in the windows that gave their times, both sides'."""
    result = job.get("result") or {}
    timings = [(result.get(side) or {}).get("timing") for side in ("kernel_exec_result", "ref_result")]
    return float(sum(timing["calls"] * timing["latency_ms"] / 1e3 for timing in timings if timing))


def device_seconds(job: Mapping[str, Any]) -> float:
    """For how long a completed job held its device; 0 where it had no result."""
    return _of_environment(job, "device_seconds")


def window_seconds(job: Mapping[str, Any]) -> float:
    """What a completed job's timing windows took, queueing calls and making ready included; 0 without a result."""
    return _of_environment(job, "window_seconds")


def _of_environment(job: Mapping[str, Any], name: str) -> float:
    environment = (job.get("result") or {}).get("environment") or {}
    return float(environment.get(name) or 0.0)
