"""The texts of a job's kernels over HTTP: where they are, whose they are, and why one is not there."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient

from tasks.jobs.job_store import JobStore
from tests.api.routes.test_jobs import RESULT, claimed, submit
from tests.tasks.artifacts import REPORT, TEXT, WHY_NO_REPORT, WHY_NOT, listed, profiled


def ended(client: FlaskClient, records: JobStore) -> str:
    job_id, attempt = claimed(client, records)
    assert records.complete(job_id, attempt, listed().body(job_id), listed().texts)
    return job_id


def refused(client: FlaskClient, path: str) -> dict[str, Any]:
    answer = client.get(path)
    problem: dict[str, Any] = answer.get_json()
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")
    return problem


def test_the_list_says_where_each_is_and_why_one_is_not(client: FlaskClient, records: JobStore) -> None:
    job_id = ended(client, records)
    answer = client.get(f"/job/{job_id}/artifacts").get_json()
    assert answer["job_id"] == job_id
    ptx, sass, ttir, reference = answer["artifacts"]
    assert (ptx["side"], ptx["path"]) == ("candidate", f"/job/{job_id}/artifacts/candidate/add.ptx")
    assert (sass["format"], sass["kernel"], sass["bytes"], sass["truncated"]) == ("sass", "add", 6, False)
    assert (ttir["unavailable"], ttir["name"], "path" in ttir) == (WHY_NOT, None, False)
    assert client.get(reference["path"]).get_data() == b"of the reference"
    in_the_result = client.get(f"/job/{job_id}").get_json()["result"]["kernel_exec_result"]["artifacts"]
    assert [one["format"] for one in in_the_result] == ["ptx", "sass", "ttir"]


def test_a_text_is_plain_and_nothing_that_a_browser_runs(client: FlaskClient, records: JobStore) -> None:
    answer = client.get(f"/job/{ended(client, records)}/artifacts/candidate/add.ptx", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.content_type) == (200, "text/plain; charset=utf-8")
    assert answer.get_data(as_text=True) == TEXT
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_a_profilers_report_is_a_file_to_save(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    assert records.complete(job_id, attempt, profiled().body(job_id), profiled().texts)
    ours, theirs = client.get(f"/job/{job_id}/artifacts").get_json()["artifacts"]
    assert (ours["format"], ours["bytes"], theirs["unavailable"]) == ("ncu-rep", len(REPORT), WHY_NO_REPORT)
    answer = client.get(ours["path"])
    assert (answer.status_code, answer.content_type) == (200, "application/octet-stream")
    assert answer.get_data() == REPORT
    assert answer.headers["Content-Disposition"] == f"attachment; filename={job_id}-candidate-profile.ncu-rep"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_one_that_is_not_there_says_why(client: FlaskClient, records: JobStore) -> None:
    job_id = ended(client, records)
    for place in ("candidate/add.ttir", "reference/add.ptx", "kernel/add.ptx"):
        problem = refused(client, f"/job/{job_id}/artifacts/{place}")
        assert problem["type"] == "urn:kernel-eval:problem:unknown-artifact"
        assert "candidate/add.ptx, candidate/add.sass, reference/mul.ptx" in problem["detail"]
        assert f"candidate ttir: {WHY_NOT}" in problem["detail"]
    records.cleanup(records.now() + 1)
    assert refused(client, f"/job/{job_id}/artifacts")["type"] == "urn:kernel-eval:problem:unknown-job"
    assert refused(client, f"/job/{job_id}/artifacts/candidate/add.ptx")["type"].endswith("unknown-job")


def test_one_whose_time_is_over(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    assert records.complete(job_id, attempt, listed().body(job_id))
    assert "it expired" in refused(client, f"/job/{job_id}/artifacts/candidate/add.ptx")["detail"]


def test_jobs_without_any(client: FlaskClient, records: JobStore) -> None:
    waiting = submit(client)
    assert client.get(f"/job/{waiting}/artifacts").get_json()["artifacts"] == []
    assert "has not ended" in refused(client, f"/job/{waiting}/artifacts/candidate/a.ptx")["detail"]
    client.delete(f"/job/{waiting}")
    assert "is cancelled" in refused(client, f"/job/{waiting}/artifacts/candidate/a.ptx")["detail"]
    job_id, attempt = claimed(client, records)
    records.complete(job_id, attempt, RESULT)
    assert client.get(f"/job/{job_id}/artifacts").get_json()["artifacts"] == []
    assert '["ptx", "sass"]' in refused(client, f"/job/{job_id}/artifacts/candidate/a.ptx")["detail"]
