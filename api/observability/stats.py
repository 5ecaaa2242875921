"""GET /stats: counters of the whole service, read from the job records and thus valid across all processes."""

from __future__ import annotations

import time
from typing import Any

from apiflask import APIBlueprint, Schema
from marshmallow import fields

from api.http.context import app_context
from domain.job import State
from tasks.fleet.heartbeat import workers
from tasks.jobs.counters import CACHE_COUNTERS

blueprint = APIBlueprint("stats", __name__, tag="Service")

Counters = dict[str, float]
RECENT_MINUTES = 5
_WORKER_PREFIX = "run_seconds_by_worker:"


class StatsSchema(Schema):
    """The counters in the original's groups, and the flat figures of its guide. Times in seconds unless named ms."""

    job_stats = fields.Dict(required=True)
    compilation_metrics = fields.Dict(required=True)
    profiling_metrics = fields.Dict(required=True)
    gpu_utilization = fields.Dict(required=True)
    throughput = fields.Dict(required=True)
    verdicts = fields.Dict(required=True, metadata={"description": "Completed jobs by verdict."})
    jobs_submitted = fields.Integer(required=True)
    jobs_completed = fields.Integer(required=True)
    jobs_failed = fields.Integer(required=True)
    jobs_cancelled = fields.Integer(required=True)
    avg_runtime_ms = fields.Float(required=True, metadata={"description": "Mean time a job held its device."})
    gpu_utilization_pct = fields.Float(required=True, metadata={"description": "Since counting began, over workers."})
    uptime_seconds = fields.Float(required=True, metadata={"description": "Since the first job was counted."})
    workers_quarantined = fields.Integer(
        required=True, metadata={"description": "Workers that take no jobs until their device passes a self-test."}
    )
    timestamp = fields.Float(required=True)


@blueprint.get("/stats")
@blueprint.output(StatsSchema)
def stats() -> dict[str, Any]:
    """Counters of jobs, builds, timings and devices."""
    quarantined = sum(worker.quarantined is not None for worker in workers(app_context().redis))
    return {**stats_body(app_context().records.counters(), time.time()), "workers_quarantined": quarantined}


def stats_body(counters: Counters, now: float) -> dict[str, Any]:
    """The body of /stats at epoch time `now`."""
    uptime = max(0.0, now - counters["counting_since"]) if "counting_since" in counters else 0.0
    used = under(counters, _WORKER_PREFIX)
    held = counters.get("run_seconds:sum", 0.0)
    available = uptime * len(used)
    return {
        "job_stats": job_stats(counters),
        "compilation_metrics": _compilation(counters),
        "profiling_metrics": _profiling(counters, used),
        "gpu_utilization": _devices(counters, used),
        "throughput": _throughput(counters, uptime),
        "verdicts": under(counters, "by_verdict:"),
        "jobs_submitted": counters["submitted"],
        "jobs_completed": counters["completed"],
        "jobs_failed": counters["failed"],
        "jobs_cancelled": counters["cancelled"],
        "avg_runtime_ms": 1000 * _mean(held, counters.get("run_seconds:count", 0)),
        "gpu_utilization_pct": min(100.0, 100 * sum(used.values()) / available) if available else 0.0,
        "uptime_seconds": uptime,
        "timestamp": now,
    }


def job_stats(counters: Counters) -> dict[str, Any]:
    """The stored jobs, as the original's /health and /stats count them."""
    return {
        "total_jobs": counters["jobs"],
        "by_status": {state.value: counters[f"by_state:{state.value}"] for state in State},
        "average_age": counters["average_age_seconds"],
    }


def _compilation(counters: Counters) -> dict[str, Any]:
    ok, failed = counters.get("compile_ok", 0), counters.get("compile_failed", 0)
    hits, misses, remote_hits = (counters.get(name, 0) for name in CACHE_COUNTERS.values())
    return {
        "total_compilations": ok + failed,
        "successful_compilations": ok,
        "failed_compilations": failed,
        **_seconds(counters, "build_seconds", ""),
        "success_rate": _rate(ok, failed),
        "cache_hits": hits,
        "cache_misses": misses,
        "cache_remote_hits": remote_hits,
        "cache_hit_rate": _mean(hits, hits + misses + remote_hits),
    }


def _profiling(counters: Counters, used: Counters) -> dict[str, Any]:
    ok, failed = counters.get("profiling_ok", 0), counters.get("profiling_failed", 0)
    right, wrong = counters.get("correctness_ok", 0), counters.get("correctness_failed", 0)
    return {
        "total_profilings": ok + failed,
        "successful_profilings": ok,
        "failed_profilings": failed,
        **_seconds(counters, "run_seconds", ""),
        "success_rate": _rate(ok, failed),
        "correctness_passed": right,
        "correctness_failed": wrong,
        "correctness_rate": _rate(right, wrong),
        "gpu_usage_times": used,
    }


def _devices(counters: Counters, used: Counters) -> dict[str, Any]:
    active = counters[f"by_state:{State.RUNNING.value}"]
    finished = counters.get("run_seconds:count", 0)
    total = sum(used.values())
    return {
        "gpu_acquisitions": finished + active,
        "gpu_releases": finished,
        "active_sessions": active,
        "total_gpu_time_seconds": total,
        **_seconds(counters, "device_wait_seconds", "wait_"),
        "utilization_by_gpu": {worker: _mean(seconds, total) for worker, seconds in used.items()},
    }


def _throughput(counters: Counters, uptime: float) -> dict[str, Any]:
    ended = counters["completed"] + counters["failed"] + counters["cancelled"]
    return {
        "server_uptime_seconds": uptime,
        "server_uptime_minutes": uptime / 60,
        "total_requests": counters["submitted"],
        "completed_requests": counters["completed"],
        "failed_requests": counters["failed"],
        "success_rate": _rate(counters["completed"], counters["failed"]),
        "requests_per_minute": _mean(60 * ended, uptime),
        "recent_throughput_per_minute": counters["finished_last_300_s"] / RECENT_MINUTES,
        "average_end_to_end_time_seconds": _average(counters, "end_to_end_seconds"),
        "min_end_to_end_time_seconds": counters.get("end_to_end_seconds:min", 0.0),
        "max_end_to_end_time_seconds": counters.get("end_to_end_seconds:max", 0.0),
    }


def _seconds(counters: Counters, name: str, what: str) -> dict[str, float]:
    """Total, average, min and max of one duration, under the original's names."""
    return {
        f"total_{what}time_seconds": counters.get(f"{name}:sum", 0.0),
        f"average_{what}time_seconds": _average(counters, name),
        f"min_{what}time_seconds": counters.get(f"{name}:min", 0.0),
        f"max_{what}time_seconds": counters.get(f"{name}:max", 0.0),
    }


def _average(counters: Counters, name: str) -> float:
    return _mean(counters.get(f"{name}:sum", 0.0), counters.get(f"{name}:count", 0))


def under(counters: Counters, prefix: str) -> Counters:
    """The counters whose names begin so, by the rest of their names, in its order."""
    return {name.removeprefix(prefix): counters[name] for name in sorted(counters) if name.startswith(prefix)}


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def _rate(good: float, bad: float) -> float:
    """The share that went well; 1.0 when nothing happened yet, as the original says it."""
    return good / (good + bad) if good + bad else 1.0
