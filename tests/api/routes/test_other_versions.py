"""Records that another version of the service wrote: with fewer members, or with members of another form."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from tasks.jobs.job_store import JobStore
from tests.api import results
from tests.api.routes.test_jobs import submit
from tests.api.routes.test_report import HTML, completed, report

ANOTHER = "Another version of the service wrote this record"


def places(value: Any, *at: str) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield (*at, name)
            yield from places(member, *at, name)


def without(body: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    left = copy.deepcopy(body)
    parent = left
    for name in place[:-1]:
        parent = parent[name]
    del parent[place[-1]]
    return left


@pytest.mark.parametrize(
    "body", [results.passed(), results.wrong(), results.of_cases()], ids=["right", "wrong", "cases"]
)
def test_no_missing_member_of_a_result_is_an_error_of_the_service(
    body: dict[str, Any], client: FlaskClient, records: JobStore, redis: Redis
) -> None:
    job_id = completed(client, records, body)
    for place in places(body):
        redis.set(f"job:{job_id}:result", json.dumps(without(body, place)))
        for path in (f"/job/{job_id}/report", f"/job/{job_id}", f"/side-by-side?first={job_id}&second={job_id}"):
            assert client.get(path, headers=HTML).status_code == 200, place


@pytest.mark.parametrize("place", ["kernel_exec_result", "ref_result"])
def test_a_member_of_another_form_is_no_error_either(
    place: str, client: FlaskClient, records: JobStore, redis: Redis
) -> None:
    body = results.passed()
    job_id = completed(client, records, body)
    for other in ({**body, place: 5}, {**body, place: {**body[place], "timing": "none"}}):
        redis.set(f"job:{job_id}:result", json.dumps(other))
        assert ANOTHER in report(client, job_id).text and client.get(f"/job/{job_id}").status_code == 200


def test_what_a_later_version_added_has_its_default(client: FlaskClient, records: JobStore) -> None:
    body = results.passed()
    for name in ("window_ms", "per_process_ms", "stop_reason", "launch_overhead_correction_us"):
        del body["kernel_exec_result"]["timing"][name]
    for name in ("message", "strict", "robustness"):
        del body["kernel_exec_result"]["comparison"][name]
    job_id = completed(client, records, body)
    assert ANOTHER not in report(client, job_id).text
    kernel = client.get(f"/job/{job_id}").get_json()["result"]["kernel_exec_result"]
    assert kernel["timing"]["window_ms"] == [] and kernel["comparison"]["robustness"] == {"failed": []}


def test_a_result_that_this_version_cannot_read_says_so(client: FlaskClient, records: JobStore) -> None:
    body = without(results.passed(), ("speedup", "verdict"))
    job_id = completed(client, records, body)
    assert ANOTHER in report(client, job_id).text
    job = client.get(f"/job/{job_id}").get_json()
    assert job["explanation"].startswith(ANOTHER) and job["next"].startswith("Submit it again")
    assert job["result"]["speedup"] == body["speedup"]
    assert client.post(f"/job/{job_id}/confirm").status_code == 409


def test_members_of_a_record_itself_may_be_missing_or_unknown(
    client: FlaskClient, records: JobStore, redis: Redis
) -> None:
    job_id = completed(client, records, results.passed())
    redis.hset(f"job:{job_id}", "summary", json.dumps({"verdict": "passed", "later": 1}))
    redis.hset(
        f"job:{job_id}",
        "failed_attempts",
        json.dumps({"attempt": 1, "worker": "gpu0@node", "stage": "time", "at": 1.0, "reason": "killed", "later": 1}),
    )
    redis.hset(f"job:{job_id}", "webhook", json.dumps({"state": "delivered", "attempts": 1, "later": 1}))
    other = submit(client)
    redis.hdel(f"job:{other}", "priority", "place")
    assert {job["job_id"] for job in client.get("/jobs").get_json()["jobs"]} == {job_id, other}
    assert report(client, job_id).text and client.get(f"/job/{other}").status_code == 200
