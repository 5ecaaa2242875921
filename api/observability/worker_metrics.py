"""The metrics of each living worker and its device, from what the workers themselves have put into Redis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from redis import Redis

from tasks.fleet.heartbeat import WorkerView, workers
from tasks.fleet.prebuilder_registry import builders
from tasks.fleet.quarantine import FAULTS
from tasks.fleet.worker_readings import Reading, readings
from tasks.jobs.job_view import text


@dataclass(frozen=True)
class CardFigure:
    """One figure of a card: its name in a reading, its metric, its meaning, and the factor to the metric's unit."""

    field: str
    metric: str
    meaning: str
    factor: float = 1.0


CARD = (
    CardFigure("sm_clock_mhz", "gpu_sm_clock_hertz", "Clock of the card's processors now.", 1e6),
    CardFigure("memory_clock_mhz", "gpu_memory_clock_hertz", "Clock of the card's memory now.", 1e6),
    CardFigure("temperature_c", "gpu_temperature_celsius", "Temperature of the card."),
    CardFigure("power_w", "gpu_power_watts", "What the card draws."),
    CardFigure("power_limit_w", "gpu_power_limit_watts", "What the card may draw."),
    CardFigure("memory_used_bytes", "gpu_memory_used_bytes", "Memory of the card that is taken, by whomever."),
    CardFigure("memory_bytes", "gpu_memory_bytes", "Memory of the card."),
    CardFigure("utilization_percent", "gpu_busy_ratio", "Part of the last sample time in which a kernel ran.", 0.01),
    CardFigure("ecc_uncorrected", "gpu_ecc_uncorrected_errors", "Memory errors since the driver was loaded."),
)


def worker_metrics(redis: Redis, counters: dict[str, float]) -> Iterator[Metric]:
    """Of the workers that were heard of in the last seconds; a worker without a card has no gpu metrics."""
    alive = workers(redis)
    told = readings(redis, [worker.name for worker in alive])
    yield from _states(alive)
    faults = {text(name): float(count) for name, count in redis.hgetall(FAULTS).items()}
    yield _each(
        GaugeMetricFamily,
        "worker_consecutive_faults",
        "Jobs in a row that ended by a fault of ours on this worker; at 3 it is quarantined.",
        {worker.name: faults.get(worker.name, 0) for worker in alive},
    )
    yield _each(
        CounterMetricFamily,
        "device_held_seconds",
        "Time in which a job of this worker held the device: load, validate and time. Its rate is the utilisation.",
        {worker.name: counters.get(f"run_seconds_by_worker:{worker.name}", 0.0) for worker in alive},
    )
    yield _each(
        GaugeMetricFamily,
        "pooled_runners",
        "Runners whose contexts wait for a job, of all pool children together; only on a GPU.",
        {name: reading["standbys"] for name, reading in told.items() if "standbys" in reading},
    )
    yield _kept_builds(alive, told)
    yield from _builders(redis)
    yield from _cards([worker for worker in alive if worker.gpu_available], told)


def _states(alive: list[WorkerView]) -> Iterator[Metric]:
    counted = GaugeMetricFamily("kernel_eval_workers", "Workers that were heard of, by state.", labels=["state"])
    quarantined = sum(worker.quarantined is not None for worker in alive)
    counted.add_metric(["taking_jobs"], len(alive) - quarantined)
    counted.add_metric(["quarantined"], quarantined)
    yield counted
    labels = ["worker", "host", "device", "gpu_uuid", "gpu_name"]
    info = GaugeMetricFamily("kernel_eval_worker_info", "1 for each worker; what and where it is.", labels=labels)
    for one in alive:
        info.add_metric([one.name, one.host, one.device, one.gpu_uuid or "", one.gpu_name or ""], 1)
    yield info
    yield _each(
        GaugeMetricFamily,
        "worker_quarantined",
        "1 where the worker takes no jobs until its device passes a self-test.",
        {worker.name: worker.quarantined is not None for worker in alive},
    )
    yield _each(
        GaugeMetricFamily,
        "worker_slots",
        "MAX_WORKERS: jobs that the worker handles at once.",
        {worker.name: worker.max_workers for worker in alive},
    )
    yield _each(
        GaugeMetricFamily,
        "worker_start_time_seconds",
        "When the worker started, in seconds since 1970.",
        {worker.name: worker.started_at for worker in alive},
    )


def _kept_builds(alive: list[WorkerView], told: dict[str, Reading]) -> Metric:
    """By host: the workers of one share their kept builds."""
    kept = GaugeMetricFamily(
        "kernel_eval_build_cache_bytes", "What the finished builds take that a node keeps.", labels=["host"]
    )
    by_host: dict[str, float] = {}
    for worker in alive:
        size = told.get(worker.name, {}).get("build_cache_bytes")
        if size is not None:
            by_host[worker.host] = max(size, by_host.get(worker.host, 0))
    for host, size in sorted(by_host.items()):
        kept.add_metric([host], size)
    return kept


def _builders(redis: Redis) -> Iterator[Metric]:
    alive = builders(redis)
    yield GaugeMetricFamily("kernel_eval_builders", "Build-only workers that were heard of.", len(alive))
    made = CounterMetricFamily(
        "kernel_eval_builder_builds", "Builds that a build-only worker has made since it started.", labels=["builder"]
    )
    for one in alive:
        made.add_metric([one.name], one.built)
    yield made
    kept = float(redis.get("builds:bytes") or 0)
    yield GaugeMetricFamily("kernel_eval_shared_builds_bytes", "What shipped builds take in Redis.", kept)


def _cards(alive: list[WorkerView], told: dict[str, Reading]) -> Iterator[Metric]:
    cards = {
        (worker.name, str(worker.gpu_index), worker.gpu_uuid or ""): told.get(worker.name, {}).get("card", {})
        for worker in alive
    }
    labels = ["worker", "gpu", "gpu_uuid"]
    answers = GaugeMetricFamily(
        "kernel_eval_gpu_up", "Whether the driver answers for this worker's card.", labels=labels
    )
    for one, card in cards.items():
        answers.add_metric(one, bool(card) and "unavailable" not in card)
    yield answers
    for figure in CARD:
        gauge = GaugeMetricFamily(f"kernel_eval_{figure.metric}", figure.meaning, labels=labels)
        for one, card in cards.items():
            if figure.field in card:
                gauge.add_metric(one, card[figure.field] * figure.factor)
        yield gauge
    reasons = GaugeMetricFamily(
        "kernel_eval_gpu_clock_throttled",
        "1 for each reason for which the driver holds the card's clocks below their maximum now.",
        labels=[*labels, "reason"],
    )
    xids = CounterMetricFamily(
        "kernel_eval_gpu_xid_errors",
        "Errors that the driver reported of the card since the worker started, by number (Xid).",
        labels=[*labels, "xid"],
    )
    for one, card in cards.items():
        for reason in card.get("reasons", ()):
            reasons.add_metric([*one, reason], 1)
        for xid, count in sorted(card.get("xids", {}).items()):
            xids.add_metric([*one, xid], count)
    yield reasons
    yield xids


def _each(family: Any, name: str, meaning: str, values: dict[str, float]) -> Metric:
    """One metric with a value for each worker."""
    metric: Metric = family(f"kernel_eval_{name}", meaning, labels=["worker"])
    for worker, value in values.items():
        metric.add_metric([worker], value)  # type: ignore[attr-defined] # Of the families, not of their base.
    return metric
