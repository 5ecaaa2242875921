"""/health and /stats: what a client of the original finds there, and figures that are true."""

from __future__ import annotations

import re

import pytest
from flask.testing import FlaskClient
from redis import Redis

from api import create_app
from domain.settings import settings
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import Device
from tests.api.payloads import RELU, kernel
from tests.api.routes.test_jobs import RESULT, claimed
from tests.conftest import free_port
from tests.tasks.node.refusing_redis import full_memory


def test_without_a_worker(client: FlaskClient) -> None:
    answer = client.get("/health")
    health = answer.get_json()
    assert (answer.status_code, health["status"], health["broker"]) == (503, "unhealthy", "ready")
    assert (health["gpu_available"], health["gpu_count"], health["workers"]) == (False, 0, [])
    assert health["compilation_service"] == "unavailable"
    assert "no worker" in health["reasons"][0]
    assert health["error"] == health["reasons"][0]


def test_with_workers(client: FlaskClient, redis: Redis, records: JobStore) -> None:
    for name in ("gpu0@node", "gpu1@node"):
        Heartbeat(redis, name, Device(f"GPU-{name}", 0, "NVIDIA H200", "h200"), 4, {}).beat()
    answer = client.get("/health")
    health = answer.get_json()
    assert (answer.status_code, health["status"], health["reasons"]) == (200, "healthy", [])
    assert (health["gpu_available"], health["gpu_count"]) == (True, 2)
    assert health["gpu_manager"] == {"available_gpus": 2}
    assert (health["compilation_service"], health["profiling_service"]) == ("ready", "ready")
    assert [worker["name"] for worker in health["workers"]] == ["gpu0@node", "gpu1@node"]
    assert health["job_stats"]["total_jobs"] == 0


def test_what_is_wrong_with_redis_is_told_and_no_reason_to_be_unhealthy(client: FlaskClient, redis: Redis) -> None:
    Heartbeat(redis, "gpu0@node", Device("GPU-1", 0, "NVIDIA H200", "h200"), 4, {}).beat()
    answer = client.get("/health")
    # The tests' own server has no append-only file.
    assert [each["code"] for each in answer.get_json()["broker_warnings"]] == ["redis-no-append-only-file"]
    assert answer.status_code == 200 and "appendonly yes" in answer.get_json()["broker_warnings"][0]["message"]


def test_with_workers_that_take_no_jobs(client: FlaskClient, redis: Redis, records: JobStore) -> None:
    def beat(name: str, reason: str | None) -> None:
        Heartbeat(redis, name, Device(f"GPU-{name}", 0, "NVIDIA H200", "h200"), 4, {}, lambda: reason).beat()

    beat("gpu0@node", "the self-test failed: Xid 79")
    beat("gpu1@node", None)
    health = client.get("/health")
    assert (health.status_code, health.get_json()["quarantined"]) == (200, ["gpu0@node"])
    assert (health.get_json()["gpu_count"], client.get("/stats").get_json()["workers_quarantined"]) == (1, 1)
    beat("gpu1@node", "the self-test failed")
    health = client.get("/health")
    assert (health.status_code, health.get_json()["compilation_service"]) == (503, "unavailable")
    assert "quarantined" in health.get_json()["error"]


def test_without_a_broker(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
    settings.cache_clear()
    try:
        client = create_app().test_client()
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    health = client.get("/health")
    assert (health.status_code, health.get_json()["broker"], health.get_json()["job_stats"]) == (
        503,
        "unavailable",
        None,
    )
    for answer in (client.post("/evaluate", json={"kernel": kernel(RELU, "torch")}), client.get("/job/x")):
        assert (answer.status_code, answer.content_type) == (503, "application/problem+json")
        assert answer.headers["Retry-After"] == "5"


def test_an_error_of_ours_shows_no_trace(redis_url: str) -> None:
    app = create_app()

    @app.get("/broken")
    def broken() -> str:
        raise RuntimeError("a secret")

    answer = app.test_client().get("/broken")
    assert (answer.status_code, answer.content_type) == (500, "application/problem+json")
    assert answer.get_json()["status"] == 500
    assert "secret" not in answer.get_data(as_text=True)
    assert "Traceback" not in answer.get_data(as_text=True)


def test_stats_of_nothing(client: FlaskClient) -> None:
    stats = client.get("/stats").get_json()
    assert stats["compilation_metrics"]["success_rate"] == 1.0
    assert (stats["jobs_completed"], stats["uptime_seconds"], stats["avg_runtime_ms"]) == (0, 0.0, 0.0)


def test_stats_add_up(client: FlaskClient, records: JobStore) -> None:
    for outcome in ("right", "right", "wrong", "broken", "failed"):
        job_id, attempt = claimed(client, records)
        kernel_result = dict(RESULT["kernel_exec_result"])
        if outcome == "failed":
            records.fail(job_id, attempt, "lost")
            continue
        if outcome != "right":
            kernel_result |= {"correctness": False, "timing": None, "compiled": outcome != "broken"}
        records.complete(job_id, attempt, {**RESULT, "kernel_exec_result": kernel_result})
    claimed(client, records)
    stats = client.get("/stats").get_json()
    assert (stats["jobs_submitted"], stats["jobs_completed"], stats["jobs_failed"]) == (6, 4, 1)
    assert stats["job_stats"]["total_jobs"] == 6
    assert stats["job_stats"]["by_status"]["building"] == 1
    compiled, profiled = stats["compilation_metrics"], stats["profiling_metrics"]
    assert (compiled["successful_compilations"], compiled["failed_compilations"]) == (3, 1)
    assert (compiled["total_compilations"], compiled["success_rate"]) == (4, 0.75)
    assert (profiled["correctness_passed"], profiled["correctness_failed"]) == (2, 1)
    assert stats["throughput"]["total_requests"] == 6
    assert stats["throughput"]["success_rate"] == 0.8
    assert stats["uptime_seconds"] > 0


def test_every_answer_has_the_id_of_its_request(client: FlaskClient) -> None:
    mine = client.get("/job/none", headers={"X-Request-Id": "trial-7:a.b_c"})
    assert (mine.status_code, mine.headers["X-Request-Id"]) == (404, "trial-7:a.b_c")
    made = {client.get("/stats").headers["X-Request-Id"] for _ in range(2)}
    assert len(made) == 2
    for bad in ("a b", "x" * 129, "<script>", ""):
        given = client.get("/stats", headers={"X-Request-Id": bad}).headers.getlist("X-Request-Id")
        assert len(given) == 1 and given[0] != bad and len(given[0]) == 32


def test_a_broker_that_takes_no_writes_is_said_to(client: FlaskClient, redis: Redis, records: JobStore) -> None:
    Heartbeat(redis, "gpu0@node", Device("GPU-1", 0, "NVIDIA H200", "h200"), 4, {}).beat()
    with full_memory(redis):
        answer, refused = client.get("/health"), client.post("/evaluate", json={"kernel": kernel(RELU, "torch")})
        metrics = client.get("/metrics").get_data(as_text=True)
    assert answer.status_code == 503
    assert len(answer.get_json()["reasons"]) == 1
    assert re.match(r"Redis takes no writes: .*maxmemory': free its memory", answer.get_json()["reasons"][0])
    assert (refused.status_code, refused.get_json()["type"]) == (503, "urn:kernel-eval:problem:broker-unreachable")
    assert "the broker takes no writes: its memory or disk is full, or it is a replica" in refused.get_json()["detail"]
    assert "kernel_eval_broker_up 0.0" in metrics
    assert "kernel_eval_records_bytes" in metrics
    assert records.list() == []
    assert client.get("/health").status_code == 200
    assert "kernel_eval_broker_up 1.0" in client.get("/metrics").get_data(as_text=True)
