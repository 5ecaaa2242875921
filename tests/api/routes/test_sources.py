"""GET /job/<id>/source and POST /job/<id>/again: the kept request, for its owner, for as long as the job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask.testing import FlaskClient
from redis import Redis

from domain.access import Scope
from domain.request import Request
from domain.settings import settings
from tasks.evaluation.celery_task import execute
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_queue import Message
from tasks.jobs.job_store import JobStore
from tasks.jobs.kept_request import NAME, read_kept_request
from tasks.node.device_info import CPU
from tests.api.keyed import app_with, holder
from tests.api.payloads import RELU, kernel
from tests.tasks.example_jobs import COMPARE, report

NAMED = replace(COMPARE, name="softmax, two passes", timeout=77, reuse=True)


def judged(records: JobStore, request: Request = NAMED) -> None:
    records.create("a", request)
    assert execute(records, records, Message("m"), "gpu0@node7", lambda *_: report()) == "passed"


def problem(client: FlaskClient, method: str, path: str) -> tuple[int, str, str]:
    answer = client.open(path, method=method)
    body = answer.get_json()
    return answer.status_code, body["type"].rpartition(":")[2], body["detail"]


def test_its_owner_reads_what_was_sent(client: FlaskClient, records: JobStore) -> None:
    judged(records)
    shown = client.get("/job/a/source").get_json()
    assert shown["job_id"] == "a" and shown["name"] == "softmax, two passes"
    assert shown["kernel"] == {"source_code": "__global__", "kernel_type": "cuda", "metadata": {}}
    assert shown["reference"]["source_code"] == "class Model: ..."


def test_the_same_request_again_is_a_new_job(client: FlaskClient, records: JobStore) -> None:
    judged(records)
    answer = client.post("/job/a/again")
    job = answer.get_json()
    assert answer.status_code == 202 and job["job_id"] != "a" and job["name"] == "softmax, two passes"
    claim = records.claim("w")
    assert claim is not None and claim.request == replace(NAMED, reuse=False)
    ids = {client.post("/job/a/again", headers={"Idempotency-Key": "k"}).get_json()["job_id"] for _ in range(2)}
    assert len(ids) == 1


@pytest.mark.parametrize("ending", ["queued", "cancelled", "failed"])
def test_a_job_without_a_verdict_has_its_source_too(client: FlaskClient, records: JobStore, ending: str) -> None:
    records.create("a", NAMED)
    if ending == "cancelled":
        records.cancel("a")
    elif ending == "failed":
        claim = records.claim("w")
        assert claim is not None and records.fail("a", claim.attempt, "the device is gone")
    assert client.get("/job/a/source").get_json()["kernel"]["source_code"] == "__global__"
    assert client.post("/job/a/again").status_code == 202


def test_a_job_that_took_over_a_result_has_its_own_name(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    Heartbeat(redis, "w", CPU, 1, {}).beat()
    body = {"kernel": kernel(RELU, "torch"), "reuse": "allow", "name": "first"}
    first = client.post("/evaluate", json=body).get_json()["job_id"]
    assert execute(records, records, Message("m"), "w", lambda *_: report()) == "passed"
    second = client.post("/evaluate?wait=5", json={**body, "name": "second"}).get_json()
    assert second["reused_from"]["job_id"] == first and second["name"] == "second", "a name is no other work"
    assert client.get(f"/job/{second['job_id']}/source").get_json()["kernel"]["source_code"] == RELU


def test_it_goes_with_the_job(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    judged(records)
    records.create("b", NAMED)
    records.cancel("b")
    assert records.cleanup(records.now() + 1) == 2
    assert problem(client, "GET", "/job/a/source")[:2] == (404, "unknown-job")
    assert redis.keys("job:*") == [] and records.stored_bytes() == 0


def test_a_stored_request_that_cannot_be_read_is_gone(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    judged(records)
    for damaged in (b"x\x9c" + b"\0" * 9, b"no zlib at all", b""):
        redis.hset("job:a:artifacts", NAME, damaged)
        assert read_kept_request(redis, "a") is None
        for method, path in (("GET", "source"), ("POST", "again")):
            assert problem(client, method, f"/job/a/{path}")[:2] == (410, "request-gone")


def test_another_key_gets_nothing(redis_url: str, redis: Redis, tmp_path: object) -> None:
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=f"{tmp_path}/keys.json", CELERY_BROKER_URL=redis_url) as app:
        owner, other = holder(app, "owner", Scope.SUBMIT, Scope.READ), holder(app, "other", Scope.SUBMIT, Scope.READ)
        submitter = holder(app, "submitter", Scope.SUBMIT)
        job_id = owner("POST", "/evaluate", json={"kernel": kernel(RELU, "torch")}).get_json()["job_id"]
        assert owner("GET", f"/job/{job_id}/source").get_json()["kernel"]["source_code"] == RELU
        assert other("GET", f"/job/{job_id}/source").status_code == 404
        assert other("POST", f"/job/{job_id}/again").status_code == 404
        assert submitter("GET", f"/job/{job_id}/source").status_code == 403
        assert owner("POST", f"/job/{job_id}/again").status_code == 202


def test_an_operator_keeps_none(
    client: FlaskClient, records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEEP_SOURCES", "off")
    settings.cache_clear()
    try:
        records.create("a", NAMED)
        records.create("b", NAMED)
        records.cancel("b")
        monkeypatch.setenv("KEEP_SOURCES", "on")  # A worker's own setting does not count.
        settings.cache_clear()
        judged(records)
        assert redis.exists("job:a:artifacts", "job:a:request", "job:b:request") == 0
        monkeypatch.setenv("KEEP_SOURCES", "off")
        settings.cache_clear()
        status, kind, detail = problem(client, "GET", "/job/a/source")
        assert (status, kind) == (410, "request-gone") and "KEEP_SOURCES" in detail
    finally:
        monkeypatch.undo()
        settings.cache_clear()
