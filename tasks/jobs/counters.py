"""Counters over all jobs and processes: the names that a finished job increments, and how they are read."""

from __future__ import annotations

from typing import Any

from redis import Redis

from domain.job import State
from tasks.node.redis_client import text

COUNTERS = "jobs:counters"
RECENT_S = 300
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Upper bounds of the histograms' buckets, in s; each bucket counts the values above the previous bound."""
CACHE_COUNTERS = {"hit": "build_cache_hits", "miss": "build_cache_misses", "remote_hit": "build_cache_remote_hits"}


def names_to_count(body: dict[str, Any]) -> list[str]:
    """The counters that a completed job's HTTP body adds one to each."""
    names = [f"by_verdict:{body['verdict']}"]
    candidate = body["kernel_exec_result"]
    for kernel in filter(None, (candidate, body.get("ref_result"))):
        names.append("compile_ok" if kernel["compiled"] else "compile_failed")
        cache = kernel.get("build", {}).get("compile_cache")
        if cache in CACHE_COUNTERS:
            names.append(CACHE_COUNTERS[cache])
    if candidate["compiled"]:
        names.append("correctness_ok" if candidate["correctness"] else "correctness_failed")
        names.append("profiling_ok" if candidate["timing"] else "profiling_failed")
    return names


def read(redis: Redis, now: float) -> dict[str, float]:
    """All counters by flat name, and the current number of jobs in each state (see `JobStore.counters`)."""
    with redis.pipeline() as pipe:
        pipe.hgetall(COUNTERS)
        for state in State:
            pipe.zcard(f"jobs:state:{state.value}")
        pipe.zcard("jobs:all")
        pipe.zcount("jobs:finished", now - RECENT_S, "+inf")
        stored, *sizes = pipe.execute()
    counters: dict[str, float] = dict.fromkeys(
        ("submitted", "completed", "failed", "cancelled", "requeued", "reused"), 0
    )
    for name, value in stored.items():
        counters[text(name)] = _number(text(value))
    for state, size in zip(State, sizes, strict=False):
        counters[f"by_state:{state.value}"] = size
    counters["jobs"], counters[f"finished_last_{RECENT_S}_s"] = sizes[-2:]
    submitted_ms = counters.pop("submitted_ms", 0)
    counters["average_age_seconds"] = now - submitted_ms / 1000 / counters["jobs"] if counters["jobs"] else 0
    return counters


def _number(value: str) -> float:
    return int(value) if value.lstrip("-").isdigit() else float(value)
