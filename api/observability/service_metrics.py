"""The service's metrics: what the job records, the workers' heartbeats and their readings in Redis add up to.

Nothing is counted in this process, so every process of the API tells the same, and a restart loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from redis import Redis
from redis.exceptions import RedisError

from api.observability.worker_metrics import worker_metrics
from domain.job import State
from domain.settings import settings
from tasks.jobs.counters import CACHE_COUNTERS
from tasks.jobs.job_lua_lib import BUCKETS_S
from tasks.jobs.job_store import JobStore

Counters = dict[str, float]

STAGES = {
    "queue": "queue_seconds",
    "build": "build_seconds",
    "device_wait": "device_wait_seconds",
    "run": "run_seconds",
    "end_to_end": "end_to_end_seconds",
}
"""The histograms' label, and the records' counter of each."""


class ServiceCollector(Collector):
    """One scrape. Where Redis is away `kernel_eval_broker_up` is 0 and there is nothing else."""

    def __init__(self, redis: Redis, records: JobStore) -> None:
        self._redis = redis
        self._records = records

    def describe(self) -> list[Metric]:
        """Asked when it is registered; nothing to say, or Redis would be asked twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            counters = self._records.counters()
            found = [*self._jobs(counters), *worker_metrics(self._redis, counters)]
        except RedisError:
            found = []
        up = GaugeMetricFamily("kernel_eval_broker_up", "Whether Redis answers the API.")
        up.add_metric([], bool(found))
        yield up
        yield from found

    def _jobs(self, counters: Counters) -> Iterator[Metric]:
        yield from _of_jobs(counters)
        yield _latencies(counters)
        yield from _of_builds(counters)
        oldest = self._records.oldest_queued()
        yield _gauge(
            "queue_oldest_age_seconds",
            "How long ago the oldest job that is queued was submitted; 0 where none is.",
            0.0 if oldest is None else max(0.0, self._records.now() - oldest),
        )
        yield _gauge("queue_limit", "MAX_QUEUE: with so many queued jobs new ones are refused.", settings().max_queue)
        kept = self._records.stored_bytes()
        yield _gauge("records_bytes", "About what the requests and results of all jobs take in Redis.", kept)
        limit = settings().records_memory
        yield _gauge("records_limit_bytes", "RECORDS_MEMORY_MIB: beyond it new jobs are refused.", limit)


def _of_jobs(counters: Counters) -> Iterator[Metric]:
    submitted = CounterMetricFamily("kernel_eval_jobs_submitted", "Jobs that were accepted.", labels=["kernel_type"])
    for name, value in _under(counters, "by_kernel_type:"):
        submitted.add_metric([name], value)
    yield submitted
    finished = CounterMetricFamily(
        "kernel_eval_jobs_finished",
        "Jobs that ended. The cause is a completed job's verdict; of others infrastructure_error, requested (its owner "
        "cancelled it) or queue_timeout; reused where an earlier answer was given whose verdict is no longer known.",
        labels=["kernel_type", "operation", "state", "cause"],
    )
    for name, value in _under(counters, "ended:"):
        finished.add_metric(name.split(":"), value)
    yield finished
    reused = CounterMetricFamily("kernel_eval_jobs_reused", "Jobs that were answered as an earlier one was.")
    reused.add_metric([], counters["reused"])
    yield reused
    requeued = CounterMetricFamily("kernel_eval_jobs_requeued", "Attempts that ended by a fault of ours, tried again.")
    requeued.add_metric([], counters["requeued"])
    yield requeued
    jobs = GaugeMetricFamily("kernel_eval_jobs", "Jobs that are kept, by the state they are in.", labels=["state"])
    for state in State:
        jobs.add_metric([state.value], counters[f"by_state:{state.value}"])
    yield jobs


def _latencies(counters: Counters) -> Metric:
    metric = HistogramMetricFamily(
        "kernel_eval_job_stage_seconds",
        "What completed jobs spent in each stage, all attempts together, and from submission to end.",
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


def _of_builds(counters: Counters) -> Iterator[Metric]:
    built = CounterMetricFamily(
        "kernel_eval_compilations", "Kernels that were built or found built, references too.", labels=["outcome"]
    )
    for outcome in ("ok", "failed"):
        built.add_metric([outcome], counters.get(f"compile_{outcome}", 0))
    yield built
    asked = CounterMetricFamily(
        "kernel_eval_build_cache_requests", "Builds that were looked for among the kept ones.", labels=["result"]
    )
    for result, name in CACHE_COUNTERS.items():
        asked.add_metric([result], counters.get(name, 0))
    yield asked


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"kernel_eval_{name}", meaning, value)


def _under(counters: Counters, prefix: str) -> Iterator[tuple[str, float]]:
    for name in sorted(counters):
        if name.startswith(prefix):
            yield name.removeprefix(prefix), counters[name]
