"""The time of a job by stage, from its timeline, which uses the service's own clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from benchmarks.latency import Latency
from domain.job import Stage


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
