"""GET /metrics: figures that are true, names by the rules, and each of them in the operations guide."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from api import create_app
from api.observability.service_metrics import STAGES
from domain.paths import ROOT
from domain.settings import settings
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import CPU, Device
from tests.api.routes.test_jobs import RESULT, claimed
from tests.conftest import free_port
from tests.docs.test_monitoring import EXPRESSIONS

GUIDE = ROOT / "docs" / "operations.md"
UNITS = ("_seconds", "_bytes", "_hertz", "_celsius", "_watts", "_ratio")
COUNTS = {
    *("jobs", "queue_limit", "broker_up", "workers", "worker_info", "worker_quarantined", "worker_slots", "gpu_up"),
    *(
        "worker_consecutive_faults",
        "build_messages",
        "gpu_ecc_uncorrected_errors",
        "gpu_clock_throttled",
    ),
}
"""Gauges without a unit: what they count is in their name."""

CARD = {
    **{"sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 41, "power_w": 120.5, "power_limit_w": 700.0},
    **{"memory_used_bytes": 1 << 30, "memory_bytes": 1 << 37, "utilization_percent": 50, "ecc_uncorrected": 0},
    **{"reasons": ["sw_power_cap"], "xids": {"31": 2}},
}
GPU = Device("GPU-1", 1, "NVIDIA H200", "h200")


def scrape(client: FlaskClient) -> dict[str, Metric]:
    answer = client.get("/metrics")
    assert (answer.status_code, answer.mimetype) == (200, "text/plain")
    return {family.name: family for family in text_string_to_metric_families(answer.get_data(as_text=True))}


def value(found: dict[str, Metric], sample: str, **labels: str) -> float | None:
    """Of the one sample with that name, less its prefix, that has these labels among its own."""
    values = [
        one.value
        for family in found.values()
        for one in family.samples
        if one.name == f"kernel_eval_{sample}" and labels.items() <= one.labels.items()
    ]
    assert len(values) <= 1, values
    return values[0] if values else None


@pytest.fixture
def full(client: FlaskClient, redis: Redis, records: JobStore) -> dict[str, Metric]:
    """With two workers, one of them on a GPU, and a job of each kind."""
    told: dict[str, Any] = {"build_cache_bytes": 4096, "card": CARD}
    Heartbeat(redis, "gpu1@node", GPU, 4, {}, lambda: "Xid 79", lambda: told).beat()
    Heartbeat(redis, "cpu0@node", CPU, 2, {}, readings=lambda: {"build_cache_bytes": 4096}).beat()
    redis.set("builds:bytes", 5)
    redis.rpush("build", *("message",) * 3)
    for verdict in ("passed", "wrong_result"):
        job_id, attempt = claimed(client, records)
        records.complete(job_id, attempt, {**RESULT, "verdict": verdict})
    job_id, attempt = claimed(client, records)
    records.requeue(job_id, attempt, "lost")
    return scrape(client)


def test_every_name_follows_the_rules(full: dict[str, Metric]) -> None:
    for name, family in full.items():
        assert re.fullmatch(r"kernel_eval_[a-z0-9_]+[a-z0-9]", name)
        assert family.documentation.endswith("."), f"{name} has no HELP"
        assert family.type in ("counter", "gauge", "histogram")
        bare = name.removeprefix("kernel_eval_")
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples), name
        elif family.type == "gauge":
            assert bare.endswith(UNITS) or bare in COUNTS, f"{name} tells no unit"
            assert not bare.endswith(("_total", "_count", "_sum", "_bucket")), name
        else:
            assert bare.endswith(UNITS), name
        for sample in family.samples:
            assert not {label for label in sample.labels if not re.fullmatch(r"[a-z_]+", label)}


def test_the_guide_has_every_metric_and_no_other(full: dict[str, Metric]) -> None:
    exported = {name + ("_total" if family.type == "counter" else "") for name, family in full.items()}
    rows = re.findall(r"^\| (`kernel_eval_[^|]*)\|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    table = [name for row in rows for name in re.findall(r"kernel_eval_\w+", row)]
    assert sorted(table) == sorted(exported)


def test_what_the_dashboard_and_the_alerts_select_is_there(full: dict[str, Metric]) -> None:
    promql_parser = pytest.importorskip("promql_parser", reason="a development tool that an offline GPU box lacks")
    told = [one for family in full.values() for one in family.samples]
    selected = 0

    def look(node: Any) -> None:
        nonlocal selected
        selector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if not isinstance(selector, promql_parser.VectorSelector) or selector.name == "up":
            return
        selected += 1
        samples = [one for one in told if one.name == selector.name]
        assert samples, selector.name
        for matcher in selector.matchers.matchers:
            values = {one.labels[matcher.name] for one in samples}
            assert matcher.op != promql_parser.MatchOp.Equal or matcher.value in values, str(selector)

    for _, expression in EXPRESSIONS:
        promql_parser.walk(promql_parser.parse(expression), look)
    assert selected >= len(EXPRESSIONS) - 1, "each but `up`"


def test_the_figures_of_jobs_are_true(full: dict[str, Metric], client: FlaskClient) -> None:
    finished = {"kernel_type": "torch", "operation": "evaluate", "state": "completed"}
    assert value(full, "jobs_finished_total", **finished, cause="passed") == 1
    assert value(full, "jobs_finished_total", **finished, cause="wrong_result") == 1
    assert value(full, "jobs_submitted_total", kernel_type="torch") == 3
    assert value(full, "jobs_requeued_total") == 1
    assert (value(full, "jobs", state="queued"), value(full, "jobs", state="completed")) == (1, 2)
    assert value(full, "broker_up") == 1
    age = value(full, "queue_oldest_age_seconds")
    assert age is not None and 0 < age < 60
    (stages,) = [family for name, family in full.items() if name == "kernel_eval_job_stage_seconds"]
    for stage in STAGES:
        buckets = [one.value for one in stages.samples if one.name.endswith("_bucket") and one.labels["stage"] == stage]
        assert buckets == sorted(buckets)
    assert value(full, "job_stage_seconds_count", stage="end_to_end") == 2
    assert value(full, "job_stage_seconds_bucket", stage="end_to_end", le="60.0") == 2
    assert (value(full, "records_bytes") or 0) > 0


def test_the_figures_of_workers_are_true(full: dict[str, Metric]) -> None:
    assert (value(full, "workers", state="taking_jobs"), value(full, "workers", state="quarantined")) == (1, 1)
    assert (value(full, "shared_builds_bytes"), value(full, "build_messages")) == (5, 3)
    assert value(full, "worker_quarantined", worker="gpu1@node") == 1
    (kept,) = full["kernel_eval_build_cache_bytes"].samples
    assert kept.value == 4096, "once for a node, not for each of its workers"
    assert value(full, "gpu_sm_clock_hertz") == 1980e6
    assert value(full, "gpu_busy_ratio", gpu="1", gpu_uuid="GPU-1") == 0.5
    assert value(full, "gpu_xid_errors_total", xid="31") == 2
    assert value(full, "gpu_clock_throttled", reason="sw_power_cap") == 1


def test_a_card_that_does_not_answer_has_no_figures(client: FlaskClient, redis: Redis) -> None:
    Heartbeat(redis, "gpu1@node", GPU, 4, {}, readings=lambda: {"card": {"unavailable": "no driver"}}).beat()
    Heartbeat(redis, "cpu0@node", CPU, 2, {}).beat()
    found = scrape(client)
    assert value(found, "gpu_up", worker="gpu1@node") == 0
    assert value(found, "gpu_up", worker="cpu0@node") is None
    assert value(found, "gpu_temperature_celsius") is None


def test_it_speaks_openmetrics_too(client: FlaskClient) -> None:
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.mimetype == "application/openmetrics-text"
    assert answer.get_data(as_text=True).endswith("# EOF\n")


def test_without_a_broker(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
    settings.cache_clear()
    try:
        client = create_app().test_client()
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    found = scrape(client)
    assert list(found) == ["kernel_eval_broker_up"]
    assert value(found, "broker_up") == 0
