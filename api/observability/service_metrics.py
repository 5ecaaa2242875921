"""Collects the service's metrics from the job records, the workers' heartbeats and their readings in Redis.

No process counts anything itself. Every API process therefore reports the same, and a restart loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from redis import Redis
from redis.exceptions import RedisError

from api.observability.stats import under
from api.observability.worker_metrics import worker_metrics
from domain.job import State
from domain.settings import settings
from tasks.jobs.counters import BUCKETS_S, CACHE_COUNTERS
from tasks.jobs.job_store import JobStore
from tasks.node.redis_client import require_writes

Counters = dict[str, float]

STAGES = {
    "queue": "queue_seconds",
    "build": "build_seconds",
    "device_wait": "device_wait_seconds",
    "run": "run_seconds",
    "end_to_end": "end_to_end_seconds",
}
"""Maps the histogram's label to the counter in the job records."""


class ServiceCollector(Collector):
    """Collects one scrape. Where Redis is unreachable, it yields only `kernel_eval_broker_up` 0."""

    def __init__(self, redis: Redis, records: JobStore) -> None:
        self._redis = redis
        self._records = records

    def describe(self) -> list[Metric]:
        """Called at registration; returns nothing, because Redis would be queried twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        collected: list[Metric] = []
        usable = False
        try:
            counters = self._records.counters()
            collected = [*self._jobs(counters), *worker_metrics(self._redis, counters)]
            require_writes(self._redis)
            usable = True
        except RedisError:
            pass  # The gauge says so, and the alert on it.
        up = GaugeMetricFamily("kernel_eval_broker_up", "Whether Redis answers the API and takes its writes.")
        up.add_metric([], usable)
        yield up
        yield from collected

    def _jobs(self, counters: Counters) -> Iterator[Metric]:
        yield from _of_jobs(counters)
        yield _latencies(counters)
        oldest, now = self._records.oldest_queued(), self._records.now()
        age = 0.0 if oldest is None else max(0.0, now - oldest)
        yield _gauge("queue_oldest_age_seconds", "Age of the oldest queued job; 0 without queued jobs.", age)
        limit = settings().max_queue
        yield _gauge("queue_limit", "MAX_QUEUE: new jobs are refused at this number of queued jobs.", limit)
        stored = self._records.stored_bytes()
        yield _gauge("records_bytes", "Approximate bytes of all jobs' requests and results in Redis.", stored)
        limit = settings().records_memory
        yield _gauge("records_limit_bytes", "RECORDS_MEMORY_MIB: beyond it new jobs are refused.", limit)


def _of_jobs(counters: Counters) -> Iterator[Metric]:
    yield _counter("jobs_submitted", "Jobs that were accepted.", under(counters, "by_kernel_type:"), "kernel_type")
    meaning = (
        "Jobs that ended. The cause is a completed job's verdict, else infrastructure_error, requested (its owner "
        "cancelled it) or queue_timeout; reused where an earlier result was returned whose verdict is no longer known."
    )
    ended = under(counters, "ended:")
    yield _counter("jobs_finished", meaning, ended, "kernel_type", "operation", "state", "cause")
    yield _counter("jobs_reused", "Jobs that returned an earlier job's result.", {"": counters["reused"]})
    meaning = "Attempts that ended by a fault of the service and were repeated."
    yield _counter("jobs_requeued", meaning, {"": counters["requeued"]})
    jobs = GaugeMetricFamily("kernel_eval_jobs", "Stored jobs, by state.", labels=["state"])
    for state in State:
        jobs.add_metric([state.value], counters[f"by_state:{state.value}"])
    yield jobs
    built = {outcome: counters.get(f"compile_{outcome}", 0) for outcome in ("ok", "failed")}
    yield _counter(
        "compilations", "Kernels that were built or loaded from a cache, references included.", built, "outcome"
    )
    lookups = {result: counters.get(name, 0) for result, name in CACHE_COUNTERS.items()}
    yield _counter("build_cache_requests", "Lookups in the build caches.", lookups, "result")


def _latencies(counters: Counters) -> Metric:
    metric = HistogramMetricFamily(
        "kernel_eval_job_stage_seconds",
        "Time of completed jobs in each stage, over all attempts, and from submission to end.",
        labels=["stage"],
    )
    for stage, name in STAGES.items():
        total, buckets = 0.0, []
        for bound in BUCKETS_S:
            total += counters.get(f"{name}:le:{bound}", 0)
            buckets.append((str(float(bound)), total))
        buckets.append(("+Inf", counters.get(f"{name}:count", 0)))
        metric.add_metric([stage], buckets, counters.get(f"{name}:sum", 0.0))
    return metric


def _counter(name: str, meaning: str, values: Counters, *labels: str) -> Metric:
    """A counter with a value for each key, which has the labels' values, separated by colons."""
    metric = CounterMetricFamily(f"kernel_eval_{name}", meaning, labels=labels)
    for key, value in values.items():
        metric.add_metric(key.split(":") if labels else [], value)
    return metric


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"kernel_eval_{name}", meaning, value)
