"""The page of a batch: the grid, the distribution of speed-ups, and the jobs that did not pass by their causes."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient

from domain.result import Status
from tasks.jobs.job_store import JobStore
from tests.api import results
from tests.api.payloads import RELU, kernel
from tests.api.routes.test_report import EVIL, HTML, Page, sound_page

ONE = {"kernel": kernel(RELU, "torch")}


def batch_of(client: FlaskClient, records: JobStore, bodies: list[dict[str, Any]], unfinished: int = 0) -> str:
    """A batch whose first jobs have these results."""
    batch_id = client.post("/batch", json={"jobs": [ONE] * (len(bodies) + unfinished)}).get_json()["batch_id"]
    for body in bodies:
        claim = records.claim("w")
        assert claim is not None and records.complete(claim.job_id, claim.attempt, body)
    return str(batch_id)


def shown(client: FlaskClient, batch_id: str, query: str = "") -> Page:
    return sound_page(client.get(f"/batch/{batch_id}{query}", headers=HTML))


def test_a_finished_batch(client: FlaskClient, records: JobStore) -> None:
    bodies = [
        *(results.passed(ratio, candidate=digit * 64) for ratio, digit in ((1.2, "a"), (3.0, "b"), (1.21, "e"))),
        *(results.failed(Status.COMPILE_ERROR, f"kernel.cu({line}): expected a semicolon {EVIL}") for line in (3, 17)),
        results.wrong("Row 7 is NaN"),
        results.failed(Status.UNSUPPORTED, "no GPU here"),
    ]
    batch_id = batch_of(client, records, bodies)
    page = shown(client, batch_id)
    assert "3 of 7 jobs passed All of them have ended. 3 speed-ups from 1.20 to 3.00, the median 1.21." in page.text
    cells = [link for link in page.those("a") if (link.get("class") or "").startswith("chip")]
    assert [cell["class"] for cell in cells] == ["chip good"] * 3 + ["chip bad"] * 3 + ["chip ours"]
    assert "Job 5, evaluate: Wrong result" in [cell["aria-label"] for cell in cells]
    assert sum(circle["class"] == "point" for circle in page.those("circle")) == 3
    causes = page.text.split("Why the others did not pass")[1]
    assert causes.index("Does not compile 2 jobs") < causes.index("Wrong result 1 job")
    assert f"kernel.cu(3): expected a semicolon {EVIL}" in causes and "kernel.cu(17)" not in causes
    fastest = page.text.split("The fastest by the lower end")[1]
    assert fastest.index("3.00×") < fastest.index("1.21×") < fastest.index("1.20×")


def test_a_failure_is_listed_by_its_name(client: FlaskClient, records: JobStore) -> None:
    named = ONE | {"name": "team/softmax <rows>"}
    batch_id = client.post("/batch", json={"jobs": [named]}).get_json()["batch_id"]
    claim = records.claim("w")
    assert claim is not None and records.complete(claim.job_id, claim.attempt, results.wrong())
    assert "0 team/softmax <rows>" in shown(client, batch_id).text.split("Why the others did not pass")[1]


def test_an_unfinished_batch_reloads_when_asked_until_it_has_ended(client: FlaskClient, records: JobStore) -> None:
    batch_id = batch_of(client, records, [results.passed(2.0)], unfinished=1)
    assert "1 of 2 jobs passed 1 job not finished." in shown(client, batch_id).text
    assert client.get(f"/batch/{batch_id}?refresh=on", headers=HTML).headers["Refresh"] == "3"
    claim = records.claim("w")
    assert claim is not None and records.complete(claim.job_id, claim.attempt, results.wrong())
    assert "Refresh" not in client.get(f"/batch/{batch_id}?refresh=on", headers=HTML).headers


def test_without_speedups_there_is_no_drawing(client: FlaskClient, records: JobStore) -> None:
    page = shown(client, batch_of(client, records, [results.wrong(), results.evaluated()]))
    assert "1 of 2 jobs passed" in page.text and page.those("circle") == []


def test_programs_get_json_and_an_unknown_batch_is_a_problem(client: FlaskClient, records: JobStore) -> None:
    batch_id = batch_of(client, records, [results.passed(2.0)])
    answer = client.get(f"/batch/{batch_id}")
    assert (answer.get_json()["done"], answer.headers["Vary"]) == (True, "Accept")
    assert client.get("/batch/none").content_type == "application/problem+json"
    unknown = client.get("/batch/none", headers=HTML)
    assert (unknown.status_code, unknown.content_type) == (404, "text/html; charset=utf-8")
