"""A job after its submission: its body in every state, waiting for it, cancelling it, listing and forgetting it."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient
from redis import Redis

from api.http.context import KEY, AppContext
from api.http.limits import PROCESSES, THREADS
from api.http.long_poll import MAX_WAIT_S
from domain.job import Stage
from domain.settings import settings
from tasks.jobs.job_notifier import CHANNEL
from tasks.jobs.job_store import JobStore
from tests.api.payloads import LEGACY, RELU, Json, kernel
from tests.tasks.example_jobs import acting_once, until

BODY = {"kernel": kernel(RELU, "torch")}
RESULT: Json = {
    "status": "success",
    "verdict": "passed",
    "gpu_type": "h200",
    "kernel_exec_result": {"compiled": True, "correctness": True, "runtime": 0.5, "timing": {}},
}


def submit(client: FlaskClient, body: Json = BODY) -> str:
    return str(client.post("/evaluate", json=body).get_json()["job_id"])


def claimed(client: FlaskClient, records: JobStore, name: str | None = None) -> tuple[str, int]:
    job_id = submit(client, BODY | {"name": name})
    claim = records.claim("gpu0@node")
    assert claim is not None and claim.job_id == job_id
    return job_id, claim.attempt


def test_state_and_status_of_every_stage(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    seen = []
    for stage in (Stage.BUILD, Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.VALIDATE, Stage.TIME):
        records.enter_stage(job_id, attempt, stage)
        answer = client.get(f"/job/{job_id}")
        job = answer.get_json()
        seen.append((job["state"], job["stage"], job["status"], answer.status_code, answer.headers["Retry-After"]))
    assert seen == [
        ("building", "build", "compiling", 200, "1"),
        ("waiting", "wait_for_device", "compiling", 200, "1"),
        ("running", "load", "validating", 200, "1"),
        ("running", "validate", "validating", 200, "1"),
        ("running", "time", "profiling", 200, "1"),
    ]
    records.complete(job_id, attempt, RESULT)
    answer = client.get(f"/job/{job_id}")
    job = answer.get_json()
    assert (job["state"], job["stage"], job["status"]) == ("completed", "done", "completed")
    assert job["result"].items() >= RESULT.items()
    for name in ("explanation", "summary", "report"):
        assert job["result"][name] == job[name]
    assert job["explanation"].startswith("It compiles and runs.") and job["report"] == f"/job/{job_id}/report"
    assert (job["summary"]["verdict"], job["summary"]["error"]) == ("passed", None)
    assert (job["worker"], job["error"], job["queue_position"]) == ("gpu0@node", None, None)
    assert job["created_at"] == job["submitted_at"]
    assert [step["stage"] for step in job["timeline"]][0::6] == ["queued", "done"]
    assert "Retry-After" not in answer.headers


def test_queue_positions(client: FlaskClient) -> None:
    jobs = [submit(client) for _ in range(3)]
    assert [client.get(f"/job/{job_id}").get_json()["queue_position"] for job_id in jobs] == [0, 1, 2]


@pytest.mark.parametrize("job_id", ["nope", "00000000-0000-4000-8000-000000000000", "x" * 3000, "%00", "a%0d%0ab"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_unknown_job(client: FlaskClient, method: str, job_id: str) -> None:
    answer = client.open(f"/job/{job_id}", method=method)
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")
    if job_id.isalnum():
        assert job_id[:100] in answer.get_json()["error"]


@pytest.mark.parametrize("part", ["request", "result", "artifacts", "bodies"])
def test_another_key_of_a_job_is_no_job(client: FlaskClient, redis: Redis, part: str) -> None:
    """The other keys of a job begin with the job's own: a reader would get an error of ours, or of the broker."""
    redis.hset("job:a:artifacts", "candidate/add.ptx", "x")
    redis.set(f"batch:a:{part}", "x")
    if part != "artifacts":
        redis.set(f"job:a:{part}", "x")
    paths = [f"/job/a:{part}{rest}" for rest in ("", "/report", "/source")]
    paths += [f"/batch/a:{part}", f"/jobs?batch_id=a:{part}", f"/side-by-side?first=a:{part}&second=b"]
    assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 404)
    assert client.delete(f"/job/a:{part}").status_code == 404
    answer = client.post("/jobs/cancel", json={"job_ids": [f"a:{part}"]})
    assert answer.get_json()["not_found"] == [f"a:{part}"]


def test_waiting_ends_with_the_result(client: FlaskClient, records: JobStore) -> None:
    def judge() -> None:
        (job,) = records.list()
        claim = records.claim("gpu0@node")
        assert claim is not None
        records.complete(job.job_id, claim.attempt, RESULT)

    for path, body, options in (
        ("/evaluate?wait=20", BODY, {}),
        ("/evaluate", BODY, {"headers": {"Prefer": "respond-async, wait=20"}}),
        ("/?wait=20", LEGACY, {}),
    ):
        with acting_once(records.queue_length, judge):
            answer = client.post(path, json=body, **options)
        assert answer.status_code == 200 and answer.get_json().items() >= RESULT.items()
        assert answer.get_json()["report"] == f"{answer.headers['Location']}/report"
        assert answer.headers["X-GPU-Type"] == "h200"
        assert answer.headers["Location"].startswith("/job/")
        assert answer.headers.get("Preference-Applied") == ("wait=20" if options else None)
        client.post("/admin/cleanup-jobs?older_than=0")


def test_waiting_ends_with_the_time(client: FlaskClient) -> None:
    answer = client.post("/evaluate?wait=0.05", json=BODY)
    assert (answer.status_code, answer.get_json()["state"]) == (202, "queued")
    answer = client.get(answer.headers["Location"] + "?wait=0.05")
    assert (answer.status_code, answer.get_json()["state"]) == (200, "queued")


@pytest.mark.parametrize("preference", ["", "wait=soon", "return=minimal", "waiting=3", "wait=-5", "wait"])
def test_preferences_that_are_no_wait_are_ignored(client: FlaskClient, preference: str) -> None:
    assert client.post("/evaluate", json=BODY, headers={"Prefer": preference}).status_code == 202


def test_a_wait_that_is_over_tells_the_job_as_it_is_by_then(
    client: FlaskClient, records: JobStore, redis: Redis
) -> None:
    job_id = submit(client)
    with acting_once(lambda: dict(redis.pubsub_numsub(CHANNEL))[CHANNEL.encode()], lambda: records.claim("gpu0@node")):
        answer = client.get(f"/job/{job_id}?wait=2")
    assert answer.get_json()["state"] == "building"


def test_a_waited_job_that_we_failed(client: FlaskClient, records: JobStore) -> None:
    def lose() -> None:
        (job,) = records.list()
        claim = records.claim("gpu0@node")
        assert claim is not None
        records.fail(job.job_id, claim.attempt, "the driver went away")

    with acting_once(records.queue_length, lose):
        answer = client.post("/compare?wait=20", json={"ref_kernel": BODY["kernel"], "custom_kernel": BODY["kernel"]})
    problem = answer.get_json()
    assert (answer.status_code, answer.content_type, problem["status"]) == (500, "application/problem+json", 500)
    assert (problem["kernel_exec_result"], problem["ref_runtime"], problem["state"]) == ({}, {}, "failed")
    assert problem["error"] == "the driver went away; submit the job again"
    job = client.get(problem["job"])
    assert (job.status_code, job.get_json()["status"], job.get_json()["error"]) == (
        200,
        "failed",
        "the driver went away",
    )
    assert job.get_json()["job_id"] == problem["job_id"]


def test_a_waited_job_that_is_cancelled(client: FlaskClient, records: JobStore) -> None:
    with acting_once(records.queue_length, lambda: records.cancel(records.list()[0].job_id)):
        answer = client.post("/evaluate?wait=20", json=BODY)
    assert (answer.status_code, answer.get_json()["state"]) == (409, "cancelled")


def test_cancel_queued(client: FlaskClient) -> None:
    job_id = submit(client)
    for _ in range(2):
        answer = client.delete(f"/job/{job_id}")
        job = answer.get_json()
        assert (answer.status_code, job["state"], job["status"]) == (200, "cancelled", "failed")
        assert job["error"] == "cancelled on request"


def test_cancel_running(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    answer = client.delete(f"/job/{job_id}")
    assert (answer.status_code, answer.get_json()["state"], answer.get_json()["cancel_requested"]) == (
        202,
        "building",
        True,
    )
    with acting_once(lambda: True, lambda: records.finish_cancelled(job_id, attempt)):
        answer = client.delete(f"/job/{job_id}?wait=20")
    assert (answer.status_code, answer.get_json()["state"]) == (200, "cancelled")


def test_cancel_completed_changes_nothing(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    records.complete(job_id, attempt, RESULT)
    before = client.get(f"/job/{job_id}").get_json()
    answer = client.delete(f"/job/{job_id}")
    assert (answer.status_code, answer.get_json()) == (200, before)


def test_listing(client: FlaskClient, records: JobStore) -> None:
    jobs = [submit(client) for _ in range(7)]
    records.cancel(jobs[3])
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = client.get(f"/jobs?limit=3{cursor and f'&cursor={cursor}'}").get_json()
        seen += [job["job_id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
    assert seen == jobs[::-1]
    assert [client.get(f"/jobs?limit={limit}").get_json()["next_cursor"] is None for limit in (6, 7, 8)] == [
        False,
        True,
        True,
    ]
    assert [job["job_id"] for job in client.get("/jobs?state=cancelled").get_json()["jobs"]] == [jobs[3]]
    assert "result" not in page["jobs"][0]
    for query in ("state=done", "limit=0", "limit=1001", "cursor=x"):
        answer = client.get(f"/jobs?{query}")
        assert (answer.status_code, query.partition("=")[0] in answer.get_json()["error"]) == (400, True)


def test_cleanup(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    queued = submit(client)
    records.complete(job_id, attempt, RESULT)
    assert client.post("/admin/cleanup-jobs").get_json() == {"status": "cleanup_completed", "removed": 0}
    answer = client.post("/admin/cleanup-jobs?older_than=0")
    assert answer.get_json() == {"status": "cleanup_completed", "removed": 1}
    assert client.get(f"/job/{job_id}").status_code == 404
    assert client.get(f"/job/{queued}").status_code == 200
    assert client.post("/admin/cleanup-jobs?older_than=-1").status_code == 400


def test_no_place_to_wait(client: FlaskClient) -> None:
    context: AppContext = client.application.extensions[KEY]
    places = 0
    while context.long_poll.hub.try_enter():
        places += 1
    try:
        answer = client.post("/evaluate?wait=30", json=BODY)
        assert (answer.status_code, answer.headers["Retry-After"]) == (202, "5")
        answer = client.get(f"{answer.headers['Location']}?wait=30")
        assert (answer.status_code, answer.headers["Retry-After"]) == (200, "5")
    finally:
        for _ in range(places):
            context.long_poll.hub.leave()
    assert places * PROCESSES >= 500 and places < THREADS, "hundreds may wait, and threads are left for who submits"


def test_full_queue(client: FlaskClient, records: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_QUEUE", "2")
    settings.cache_clear()
    try:
        submit(client)
        part = client.post("/batch", json={"jobs": [BODY, BODY]})
        assert (part.status_code, part.headers["Retry-After"], part.get_json()["accepted"]) == (202, "5", 1)
        assert part.get_json()["jobs"][1]["problem"]["type"].endswith("queue-full")
        refused = [client.post("/batch", json={"jobs": [BODY, BODY]}), client.post("/evaluate?wait=30", json=BODY)]
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    for answer in refused:
        assert (answer.status_code, answer.content_type) == (503, "application/problem+json")
        assert answer.headers["Retry-After"] == "5"
        assert answer.get_json()["type"].endswith(":queue-full")
    assert records.queue_length() == 2


def test_full_records(client: FlaskClient, records: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of large sources is bounded by their bytes, whatever they are many; room comes back with their ends."""
    monkeypatch.setenv("RECORDS_MEMORY_MIB", "1")
    settings.cache_clear()
    large = {"kernel": {"source_code": "#" * 400_000, "kernel_type": "torch"}}
    try:
        jobs = [submit(client, large) for _ in range(2)]
        answer = client.post("/evaluate", json=large)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert answer.get_json()["type"].endswith("records-full")
        assert records.cancel(jobs[0]) is not None
        submit(client, large)
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    assert 800_000 < records.stored_bytes() < 1 << 20
    for view in records.list():
        records.cancel(view.job_id)
    records.cleanup(records.now() + 1)
    assert records.stored_bytes() == 0


def test_cancel_a_batch_and_many(client: FlaskClient, records: JobStore) -> None:
    running, done = (claimed(client, records) for _ in range(2))
    batch = client.post("/batch", json={"jobs": [BODY] * 3}).get_json()
    behind = submit(client)
    assert client.get(f"/job/{behind}").get_json()["queue_position"] == 3
    answer = client.post("/jobs/cancel", json={"batch_id": batch["batch_id"]})
    assert (answer.status_code, answer.get_json()["cancelled"], answer.get_json()["not_found"]) == (200, 3, [])
    again = client.post("/jobs/cancel", json={"batch_id": batch["batch_id"]}).get_json()
    assert (again["cancelled"], again["cancelling"], again["already_finished"]) == (0, 0, 3)
    assert client.get(f"/job/{behind}").get_json()["queue_position"] == 0
    records.complete(*done, RESULT)
    answer = client.post("/jobs/cancel", json={"job_ids": [behind, running[0], done[0], "nobody", behind]}).get_json()
    assert (answer["cancelled"], answer["cancelling"], answer["already_finished"], answer["not_found"]) == (
        1,
        1,
        1,
        ["nobody"],
    )
    assert [(job["state"], job["cancel_requested"]) for job in answer["jobs"]] == [
        ("cancelled", False),
        ("building", True),
        ("completed", False),
    ]
    for body in ({}, {"job_ids": []}, {"job_ids": ["a"], "batch_id": "b"}, {"job_ids": ["a"] * 5 + [""]}):
        assert client.post("/jobs/cancel", json=body).status_code == 400, body
    unknown = client.post("/jobs/cancel", json={"batch_id": "nobody's"})
    assert (unknown.status_code, unknown.get_json()["title"]) == (404, "No such batch")


def test_one_idempotency_key_is_one_job(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    named = {"Idempotency-Key": "try-7"}
    first, again = (client.post("/evaluate", json=BODY, headers=named) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.get_json()["job_id"] == again.get_json()["job_id"] != submit(client)
    assert (redis.llen("evaluate"), records.counters()["submitted"]) == (2, 2)
    other = client.post("/evaluate", json={**BODY, "num_trials": 3}, headers=named)
    assert (other.status_code, other.get_json()["type"]) == (422, "urn:kernel-eval:problem:idempotency-key-reused")
    batches = [client.post("/batch", json={"jobs": [BODY, {}, BODY]}, headers=named).get_json() for _ in range(2)]
    assert batches[0] == batches[1] and batches[0]["accepted"] == 2
    for bodies in ([BODY, {}, BODY, BODY], [BODY, {}], [BODY, BODY, {}], [BODY, {}, {**BODY, "num_trials": 3}]):
        other = client.post("/batch", json={"jobs": bodies}, headers=named)
        assert (other.status_code, other.get_json()["type"]) == (422, "urn:kernel-eval:problem:idempotency-key-reused")
    assert records.counters()["submitted"] == 4, "a batch is all of its bodies"
    for view in records.list(batch_id=batches[0]["batch_id"]):
        records.cancel(view.job_id)
    records.cleanup(records.now() + 1)
    assert client.post("/batch", json={"jobs": [BODY]}, headers=named).status_code == 202, "it is kept no longer"
    for bad in ("", "two words", "x" * 256):
        assert client.post("/evaluate", json=BODY, headers={"Idempotency-Key": bad}).status_code == 400, bad


def test_a_job_that_nobody_begins_in_time(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    job_id = client.post("/evaluate", json={**BODY, "queue_timeout": 60, "build_timeout": 9}).get_json()["job_id"]
    job = client.get(f"/job/{job_id}").get_json()
    assert (job["state"], job["timeout"], job["build_timeout"], job["queue_timeout"]) == ("queued", 120, 9, 60)
    assert records.expire_overdue() == 0
    redis.zincrby("jobs:deadlines", -60, job_id)
    assert records.claim("gpu0@node") is None
    job = client.get(f"/job/{job_id}").get_json()
    assert (job["state"], job["error_type"]) == ("cancelled", "queue_timeout")
    assert "not begun within its queue_timeout of 60 s" in job["error"]
    for field, value in (
        ("queue_timeout", 0),
        ("queue_timeout", 700_000),
        ("build_timeout", 4),
        ("build_timeout", 9e9),
    ):
        answer = client.post("/evaluate", json={**BODY, field: value})
        assert (answer.status_code, answer.get_json()["errors"][0]["path"]) == (400, [field])


def test_a_queue_deadline_ends_a_job_that_is_waited_for(client: FlaskClient, records: JobStore) -> None:
    with acting_once(records.expire_overdue, lambda: None):  # As a worker's reconciler.
        answer = client.post(f"/evaluate?wait={MAX_WAIT_S}", json={**BODY, "queue_timeout": 1})
    assert (answer.status_code, answer.get_json()["type"]) == (409, "urn:kernel-eval:problem:job-cancelled")
    assert "queue_timeout of 1 s" in answer.get_json()["detail"]
    # Without any worker whose reconciler looks, asking does it.
    job_id = client.post("/evaluate", json={**BODY, "queue_timeout": 1}).get_json()["job_id"]
    until(lambda: client.get(f"/job/{job_id}").get_json()["state"] == "cancelled")
