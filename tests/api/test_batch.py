"""POST /batch: every body answered on its own, in order."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from api.schemas.batch import BatchEntrySchema, BatchLineSchema, BatchResponseSchema, BatchViewSchema
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from tasks.jobs.job_store import JobStore
from tests.api import results
from tests.api.payloads import LEGACY, RELU, TEST_DATA, TRITON_ADD, Json, kernel
from tests.tasks.example_jobs import acting_once

GOOD = kernel(RELU, "torch")
ONE, TWO = {"kernel": GOOD}, {"ref_kernel": GOOD, "custom_kernel": GOOD}


def test_mixed(client: FlaskClient, records: JobStore) -> None:
    jobs: list[Any] = [
        ONE,
        {**ONE, "operation": "evaluate", "timeout": 7},
        {**ONE, "num_trials": 0},
        TWO,
        {**TWO, "operation": "compare"},
        {"kernel": GOOD, "custom_kernel": GOOD},
        LEGACY,
        {"kernel": kernel(TRITON_ADD, "triton")},
        "text",
        {"operation": "judge", **ONE},
        {"operation": "evaluate", **TWO},
        *TEST_DATA.values(),
    ]
    answer = client.post("/batch", json={"jobs": jobs})
    assert answer.status_code == 202
    body = answer.get_json()
    assert [entry["index"] for entry in body["jobs"]] == list(range(len(jobs)))
    refused = {entry["index"]: entry["problem"] for entry in body["jobs"] if "problem" in entry}
    assert {index: problem["errors"][0]["path"] for index, problem in refused.items()} == {
        2: ["num_trials"],
        7: ["kernel", "io"],
        8: [],
        9: ["operation"],
        10: ["kernel"],
    }
    assert refused[2]["status"] == 400
    assert refused[2]["instance"] == "/batch#/jobs/2"
    assert (body["accepted"], body["refused"]) == (len(jobs) - 5, 5)
    accepted = [entry for entry in body["jobs"] if "job_id" in entry]
    assert all(entry["location"] == f"/job/{entry['job_id']}" for entry in accepted)
    listed = client.get(f"/jobs?batch_id={body['batch_id']}&limit=100").get_json()["jobs"]
    assert [job["job_id"] for job in listed] == [entry["job_id"] for entry in accepted][::-1]
    operations = [job["operation"] for job in listed][::-1]
    assert operations[:6] == ["evaluate", "evaluate", "compare", "compare", "compare", "compare"]
    assert client.get(f"/job/{accepted[1]['job_id']}").get_json()["timeout"] == 7


def test_a_comparison_with_a_misspelt_kernel_does_not_judge_its_reference(client: FlaskClient) -> None:
    [entry] = client.post("/batch", json={"jobs": [{"ref_kernel": GOOD, "custom_kernal": GOOD}]}).get_json()["jobs"]
    assert entry["problem"]["detail"].endswith("did you mean it by `custom_kernal`?")


def test_a_state_of_a_batch(client: FlaskClient, records: JobStore) -> None:
    body = client.post("/batch", json={"jobs": [ONE] * 5}).get_json()
    records.cancel(body["jobs"][2]["job_id"])
    page = client.get(f"/jobs?batch_id={body['batch_id']}&state=cancelled&limit=3").get_json()
    assert [job["job_id"] for job in page["jobs"]] == [body["jobs"][2]["job_id"]] and page["next_cursor"] is None
    query = f"/jobs?batch_id={body['batch_id']}&state=queued&limit=3"
    page = client.get(query).get_json()
    assert [job["job_id"] for job in page["jobs"]] == [body["jobs"][index]["job_id"] for index in (4, 3, 1)]
    rest = client.get(f"{query}&cursor={page['next_cursor']}").get_json()
    assert [job["job_id"] for job in rest["jobs"]] == [body["jobs"][0]["job_id"]]


def test_nothing_accepted(client: FlaskClient) -> None:
    answer = client.post("/batch", json={"jobs": [{}, None]})
    assert answer.status_code == 202
    body = answer.get_json()
    assert (body["batch_id"], body["accepted"], body["refused"]) == (None, 0, 2)


@pytest.mark.parametrize("body", [{}, {"jobs": None}, {"jobs": {}}, {"jobs": []}, {"jobs": [ONE] * 1001}])
def test_refused_as_a_whole(client: FlaskClient, records: JobStore, body: Any) -> None:
    answer = client.post("/batch", json=body)
    assert (answer.status_code, answer.content_type) == (400, "application/problem+json")
    assert answer.get_json()["errors"][0]["path"] == ["jobs"]
    assert records.queue_length() == 0


def test_a_thousand(client: FlaskClient, records: JobStore) -> None:
    body = client.post("/batch", json={"jobs": [ONE] * 1000}).get_json()
    assert body["accepted"] == records.queue_length() == 1000


def test_half_of_a_legacy_body_is_told_what_is_missing(client: FlaskClient) -> None:
    entry = client.post("/batch", json={"jobs": [{"ref_code": "x"}]}).get_json()["jobs"][0]
    assert entry["problem"]["detail"].startswith("custom_code: is missing")


def judge(records: JobStore, body: Json) -> str:
    """The job that is next ends with that result."""
    claim = records.claim("gpu0@node")
    assert claim is not None and records.complete(claim.job_id, claim.attempt, body)
    return claim.job_id


def test_what_became_of_it(client: FlaskClient, records: JobStore) -> None:
    answer = client.post("/batch", json={"jobs": [{}, TWO, ONE, ONE, ONE]})
    at = answer.headers["Location"]
    jobs = [entry.get("job_id") for entry in answer.get_json()["jobs"]]
    assert at == f"/batch/{answer.get_json()['batch_id']}"
    assert judge(records, results.passed(2.0, Flag(FlagCode.WORK_BEFORE_CLOCK, "odd"))) == jobs[1]
    broken = results.evaluated()
    broken["verdict"], broken["kernel_exec_result"]["compilation_error"] = "compile_error", "\n  SyntaxError: x\nmore"
    assert judge(records, broken) == jobs[2]
    records.cancel(jobs[3])
    body = client.get(at).get_json()
    assert (body["done"], body["states"], body["verdicts"]) == (
        False,
        {"completed": 2, "cancelled": 1, "queued": 1},
        {"passed": 1, "compile_error": 1},
    )
    assert [(job["index"], job["job_id"], job["state"], job["verdict"], job["error"]) for job in body["jobs"]] == [
        (1, jobs[1], "completed", "passed", None),
        (2, jobs[2], "completed", "compile_error", "SyntaxError: x"),
        (3, jobs[3], "cancelled", None, "cancelled on request"),
        (4, jobs[4], "queued", None, None),
    ]
    first = body["jobs"][0]
    assert set(body) == set(BatchViewSchema().fields) and set(first) == set(BatchLineSchema().fields)
    assert (first["latency_ms"], first["relative_ci"], first["flag_count"]) == (0.0124, 0.004, 1)
    assert first["speedup"] == {"ratio": 2.0, "ci_low": 1.8, "ci_high": 2.2}
    listed = client.get(f"/jobs?batch_id={body['batch_id']}").get_json()["jobs"]
    assert [(job["batch_index"], (job["summary"] or {}).get("verdict")) for job in listed] == [
        (4, None), (3, None), (2, "compile_error"), (1, "passed"),
    ]  # fmt: skip


def test_waiting_for_all_of_it(client: FlaskClient, records: JobStore) -> None:
    body = client.post("/batch?wait=0.05", json={"jobs": [ONE, ONE, None]})
    assert (body.status_code, body.get_json()["done"], body.get_json()["states"]) == (202, False, {"queued": 2})
    at = body.headers["Location"]
    assert client.get(f"{at}?wait=0.05").get_json()["done"] is False

    def judge_both() -> None:
        for _ in range(2):
            judge(records, results.evaluated())

    with acting_once(lambda: records.queue_length() == 2, judge_both):
        assert client.get(f"{at}?wait=20").get_json()["verdicts"] == {"passed": 2}
    with acting_once(lambda: records.queue_length() == 2, judge_both):
        answer = client.post("/batch", json={"jobs": [ONE, None, ONE]}, headers={"Prefer": "wait=20"})
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (200, "wait=20")
    assert [entry.get("verdict") for entry in answer.get_json()["jobs"]] == ["passed", None, "passed"]
    assert answer.get_json()["jobs"][1]["problem"]["status"] == 400
    assert set(answer.get_json()) == set(BatchResponseSchema().fields) - {"ignored"}
    assert set(answer.get_json()["jobs"][0]) == set(BatchEntrySchema().fields) - {"ignored", "problem"}
    refused = client.post("/batch?wait=20", json={"jobs": [None]})
    assert (refused.status_code, refused.get_json()["batch_id"]) == (202, None)


def test_of_an_unknown_batch(client: FlaskClient) -> None:
    for path in ("/batch/none", "/batch/none?wait=5", "/jobs?batch_id=none"):
        answer = client.get(path)
        assert (answer.status_code, answer.get_json()["type"]) == (404, "urn:kernel-eval:problem:unknown-batch")
