"""Metrics of each living worker and its device, from the readings that the workers store in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from redis import Redis

from tasks.fleet.heartbeat import WorkerView, workers
from tasks.fleet.quarantine import FAULTS
from tasks.fleet.worker_readings import Reading, readings
from tasks.jobs.submit import BUILD_QUEUE
from tasks.node.redis_client import text


@dataclass(frozen=True)
class CardFigure:
    """One figure of a GPU: its name in a reading, its metric, its meaning, and the factor to the metric's unit."""

    field: str
    metric: str
    meaning: str
    factor: float = 1.0


CARD = (
    CardFigure("sm_clock_mhz", "gpu_sm_clock_hertz", "Current clock of the GPU's processors.", 1e6),
    CardFigure("memory_clock_mhz", "gpu_memory_clock_hertz", "Current clock of the GPU's memory.", 1e6),
    CardFigure("temperature_c", "gpu_temperature_celsius", "Temperature of the GPU."),
    CardFigure("power_w", "gpu_power_watts", "Power that the GPU draws."),
    CardFigure("power_limit_w", "gpu_power_limit_watts", "Power limit of the GPU."),
    CardFigure("memory_used_bytes", "gpu_memory_used_bytes", "GPU memory in use by any process."),
    CardFigure("memory_bytes", "gpu_memory_bytes", "Total GPU memory."),
    CardFigure(
        "utilization_percent", "gpu_busy_ratio", "Share of the last sample interval in which a kernel ran.", 0.01
    ),
    CardFigure("ecc_uncorrected", "gpu_ecc_uncorrected_errors", "Memory errors since the driver was loaded."),
)

WORKER: tuple[tuple[str, str, Callable[[WorkerView], float]], ...] = (
    ("worker_quarantined", "1 where the worker takes no jobs until its device passes a self-test.",
     lambda worker: worker.quarantined is not None),
    ("worker_slots", "MAX_WORKERS: jobs that the worker handles at once.", lambda worker: worker.max_workers),
    ("worker_start_time_seconds", "When the worker started, in seconds since 1970.", lambda worker: worker.started_at),
)  # fmt: skip


def worker_metrics(redis: Redis, counters: dict[str, float]) -> Iterator[Metric]:
    """Metrics of the workers with a recent heartbeat; a worker without a GPU has no gpu metrics."""
    alive = workers(redis)
    readings_by_worker = readings(redis, [worker.name for worker in alive])
    yield from _states(alive)
    faults = {text(name): float(count) for name, count in redis.hgetall(FAULTS).items()}
    yield _each(
        GaugeMetricFamily,
        "worker_consecutive_faults",
        "Consecutive jobs on this worker that ended by a fault of the service; at 3 it is quarantined.",
        {worker.name: faults.get(worker.name, 0) for worker in alive},
    )
    yield _each(
        CounterMetricFamily,
        "device_held_seconds",
        "Time in which a job of this worker held the device: load, validate and time. Its rate is the utilisation.",
        {worker.name: counters.get(f"run_seconds_by_worker:{worker.name}", 0.0) for worker in alive},
    )
    yield _stored_builds(alive, readings_by_worker)
    yield from _shared_builds(redis)
    yield from _gpu_metrics([worker for worker in alive if worker.gpu_available], readings_by_worker)


def _states(alive: list[WorkerView]) -> Iterator[Metric]:
    counted = GaugeMetricFamily("kernel_eval_workers", "Workers with a recent heartbeat, by state.", labels=["state"])
    quarantined = sum(worker.quarantined is not None for worker in alive)
    counted.add_metric(["taking_jobs"], len(alive) - quarantined)
    counted.add_metric(["quarantined"], quarantined)
    yield counted
    labels = ["worker", "host", "device", "gpu_uuid", "gpu_name"]
    info = GaugeMetricFamily("kernel_eval_worker_info", "1 for each worker; its labels describe it.", labels=labels)
    for one in alive:
        info.add_metric([one.name, one.host, one.device, one.gpu_uuid or "", one.gpu_name or ""], 1)
    yield info
    for name, meaning, read in WORKER:
        yield _each(GaugeMetricFamily, name, meaning, {worker.name: read(worker) for worker in alive})


def _stored_builds(alive: list[WorkerView], readings_by_worker: dict[str, Reading]) -> Metric:
    """The maximum of each host's readings, because the workers of one host share their stored builds."""
    cache_bytes = GaugeMetricFamily(
        "kernel_eval_build_cache_bytes", "Bytes of the finished builds that a node caches.", labels=["host"]
    )
    host_sizes: dict[str, float] = {}
    for worker in alive:
        size = readings_by_worker.get(worker.name, {}).get("build_cache_bytes")
        if size is not None:
            host_sizes[worker.host] = max(size, host_sizes.get(worker.host, 0))
    for host, size in sorted(host_sizes.items()):
        cache_bytes.add_metric([host], size)
    return cache_bytes


def _shared_builds(redis: Redis) -> Iterator[Metric]:
    shared_bytes, messages = float(redis.get("builds:bytes") or 0), float(redis.llen(BUILD_QUEUE))
    yield GaugeMetricFamily("kernel_eval_shared_builds_bytes", "Bytes of shared builds in Redis.", shared_bytes)
    meaning = "Messages that wait for a build-only worker; they stay where there is none."
    yield GaugeMetricFamily("kernel_eval_build_messages", meaning, messages)


def _gpu_metrics(alive: list[WorkerView], readings_by_worker: dict[str, Reading]) -> Iterator[Metric]:
    cards = {
        (worker.name, str(worker.gpu_index), worker.gpu_uuid or ""): readings_by_worker.get(worker.name, {}).get(
            "card", {}
        )
        for worker in alive
    }
    labels = ["worker", "gpu", "gpu_uuid"]
    reachable = GaugeMetricFamily(
        "kernel_eval_gpu_up", "Whether the driver responds for this worker's GPU.", labels=labels
    )
    for label_values, card in cards.items():
        reachable.add_metric(label_values, bool(card) and "unavailable" not in card)
    yield reachable
    for figure in CARD:
        gauge = GaugeMetricFamily(f"kernel_eval_{figure.metric}", figure.meaning, labels=labels)
        for label_values, card in cards.items():
            if figure.field in card:
                gauge.add_metric(label_values, card[figure.field] * figure.factor)
        yield gauge
    reasons = GaugeMetricFamily(
        "kernel_eval_gpu_clock_throttled",
        "1 for each reason for which the driver currently holds the GPU's clocks below their maximum.",
        labels=[*labels, "reason"],
    )
    xids = CounterMetricFamily(
        "kernel_eval_gpu_xid_errors",
        "Errors of the GPU that the driver reported since the worker started, by number (Xid).",
        labels=[*labels, "xid"],
    )
    for label_values, card in cards.items():
        for reason in card.get("reasons", ()):
            reasons.add_metric([*label_values, reason], 1)
        for xid, count in sorted(card.get("xids", {}).items()):
            xids.add_metric([*label_values, xid], count)
    yield reasons
    yield xids


def _each(family: Any, name: str, meaning: str, values: dict[str, float]) -> Metric:
    metric: Metric = family(f"kernel_eval_{name}", meaning, labels=["worker"])
    for worker, value in values.items():
        metric.add_metric([worker], value)  # type: ignore[attr-defined] # The families have it, not their base.
    return metric
