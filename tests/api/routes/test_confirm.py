"""POST /job/<id>/confirm: the same sources again in a new job, and who is told why there is none."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from flask.testing import FlaskClient
from redis import Redis

from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Report, Speedup, Status
from tasks.evaluation.celery_task import execute
from tasks.fleet.heartbeat import NAMES
from tasks.jobs.job_queue import Message
from tasks.jobs.job_store import JobStore
from tasks.jobs.kept_request import MAX_KEPT, MAX_UNPACKED, kept_request, read_kept_request
from tests.tasks.example_jobs import COMPARE, EVALUATE

FASTER = Report(
    Outcome(Status.PASSED, "cuda", compiled=True),
    {"host": "node7", "gpu_id": 0, "gpu_model": "h200"},
    Outcome(Status.PASSED, "torch", compiled=True),
    Speedup(2.0, 1.9, 2.1, "faster"),
)


def judged(records: JobStore, report: Report = FASTER, request: Request = COMPARE) -> None:
    records.create("a", request)
    assert execute(records, records, Message("m"), "gpu0@node7", lambda *_: report) == report.outcome.status.value


def card(redis: Redis, name: str, host: str, index: int, model: str = "h200", **more: object) -> None:
    """The heartbeat of a worker with that card."""
    facts = {
        **{"name": name, "host": host, "pid": 1, "device": "cuda:0", "gpu_available": True, "gpu_index": index},
        **{"gpu_uuid": name, "gpu_name": model, "gpu_type": model, "gpu_model": model, "max_workers": 1},
        **{"started_at": 0.0, "seen_at": 0.0, **more},
    }
    redis.sadd(NAMES, name)
    redis.set(f"worker:{name}", json.dumps(facts), ex=60)
    redis.hset("workers:gpu", name, model)


def test_the_new_job_has_the_same_sources_and_knows_the_first_result(
    client: FlaskClient, records: JobStore, redis: Redis
) -> None:
    judged(records, request=replace(COMPARE, atol=0.5, profile=True, timeout=30))
    card(redis, "gpu0@node7", "node7", 0)
    answer = client.post("/job/a/confirm")
    assert answer.status_code == 202, answer.get_json()
    job = answer.get_json()
    assert answer.headers["Location"] == f"/job/{job['job_id']}" and job["job_id"] != "a"
    claim = records.claim("gpu0@node7", "h200")
    assert claim is not None and claim.job_id == job["job_id"]
    request, first = claim.request, claim.request.confirms
    assert (request.kernel, request.reference, request.atol) == (COMPARE.kernel, COMPARE.reference, 0.5)
    assert (request.budget, request.num_trials, request.timeout) == ("precise", 1000, 120)
    assert (request.profile, request.gpu, request.replay_seed) == (False, "h200", None)
    assert first is not None and (first.job_id, first.speedup) == ("a", FASTER.speedup)


@pytest.mark.parametrize(
    ("others", "queue_name"),
    [
        ([("b", "node7", 1, {})], "evaluate.b"),
        ([("b", "node8", 0, {}), ("c", "node7", 1, {})], "evaluate.c"),
        ([("b", "node8", 0, {})], "evaluate.b"),
        ([("b", "node7", 1, {"model": "h100"})], "evaluate.gpu.h200"),
        ([("b", "node7", 1, {"quarantined": "it fails"})], "evaluate.gpu.h200"),
        ([("b", "node7", 0, {})], "evaluate.gpu.h200"),
    ],
)
def test_it_goes_to_another_card_where_there_is_one(
    client: FlaskClient,
    records: JobStore,
    redis: Redis,
    others: list[tuple[str, str, int, dict[str, str]]],
    queue_name: str,
) -> None:
    judged(records)
    card(redis, "gpu0@node7", "node7", 0)
    for name, host, index, more in others:
        card(redis, name, host, index, **more)
    assert client.post("/job/a/confirm").status_code == 202
    assert [(queue.name, queue.jobs) for queue in records.queue.all()] == [(queue_name, 1)]


def test_sent_again_under_a_key_it_is_the_same_job(client: FlaskClient, records: JobStore) -> None:
    judged(records, replace(FASTER, environment={"host": "here", "gpu_id": None}))
    ids = [client.post("/job/a/confirm", headers={"Idempotency-Key": "k"}).get_json()["job_id"] for _ in range(2)]
    assert ids[0] == ids[1] and client.post("/job/a/confirm").get_json()["job_id"] != ids[0]


def refused(client: FlaskClient, status: int, kind: str) -> str:
    answer = client.post("/job/a/confirm")
    problem = answer.get_json()
    assert (answer.status_code, problem["type"]) == (status, f"urn:kernel-eval:problem:{kind}"), problem
    return str(problem["detail"])


def test_an_unknown_job(client: FlaskClient) -> None:
    refused(client, 404, "unknown-job")


def test_a_job_without_a_verdict(client: FlaskClient, records: JobStore) -> None:
    records.create("a", COMPARE)
    assert "wait" in refused(client, 409, "job-not-completed")
    records.cancel("a")
    assert "submit it again" in refused(client, 409, "job-not-completed")


def test_a_job_without_a_speedup(client: FlaskClient, records: JobStore) -> None:
    judged(records, replace(FASTER, speedup=None))
    assert "the kernel was not timed" in refused(client, 409, "nothing-to-confirm")


def test_a_job_without_a_reference(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    judged(records, Report(FASTER.outcome, FASTER.environment), EVALUATE)
    assert "it was no comparison" in refused(client, 409, "nothing-to-confirm")
    assert read_kept_request(redis, "a") == EVALUATE


def test_a_request_that_was_too_large(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    noise = random.Random(0).randbytes(MAX_KEPT).hex()
    large = replace(COMPARE, kernel=Kernel(noise + noise[::-1], KernelType.CUDA))
    assert kept_request(large) == {}
    assert kept_request(replace(COMPARE, kernel=Kernel(" " * (MAX_UNPACKED + 1), KernelType.CUDA))) == {}
    judged(records, request=large)
    assert "too large" in refused(client, 410, "request-gone")


def test_the_kept_request_goes_with_the_job(records: JobStore, redis: Redis) -> None:
    judged(records)
    assert read_kept_request(redis, "a") == COMPARE
    assert records.cleanup(records.now() + 1) == 1
    assert read_kept_request(redis, "a") is None and records.stored_bytes() == 0


def test_a_kept_request_is_no_artifact(client: FlaskClient, records: JobStore) -> None:
    judged(records)
    assert client.get("/job/a/artifacts").get_json()["artifacts"] == []
