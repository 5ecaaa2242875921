"""The dashboard: a page or JSON, what it shows, and with API keys only what the key may see."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient
from redis import Redis

from domain.access import Scope
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import Device
from tests.api import results
from tests.api.keyed import app_with, holder
from tests.api.payloads import RELU, kernel
from tests.api.routes.test_jobs import claimed, submit
from tests.api.routes.test_report import EVIL, HTML, Page, assert_sound, sound_page

BODY = {"kernel": kernel(RELU, "torch")}


def shown(client: FlaskClient, **headers: str) -> Page:
    answer = client.get("/", headers={**HTML, **headers})
    assert answer.headers["Vary"] == "Accept"
    return sound_page(answer)


def completed(client: FlaskClient, records: JobStore, ratio: float, candidate: str) -> str:
    job_id, attempt = claimed(client, records)
    assert records.complete(job_id, attempt, results.passed(ratio, candidate=candidate * 64))
    return job_id


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0.5", ""])
def test_programs_get_json(client: FlaskClient, records: JobStore, accept: str) -> None:
    job_id = completed(client, records, 2.0, "c")
    body = client.get("/", headers={"Accept": accept}).get_json()
    assert body["jobs_by_state"]["completed"] == 1 and body["links"]["documentation"] == "/docs"
    assert body["recent_jobs"][0]["summary"]["ratio"] == 2.0
    assert body["leaderboards"][0]["leaders"][0]["job_id"] == job_id


def test_an_empty_service(client: FlaskClient) -> None:
    page = shown(client)
    assert "No worker takes jobs" in page.text and "None yet: a candidate is listed" in page.text


def test_jobs_workers_and_leaders(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    Heartbeat(redis, "gpu0@node", Device("GPU-1", 0, "NVIDIA H200", "h200"), 4, {}).beat()
    for ratio, candidate in ((1.5, "a"), (3.0, "b"), (1.6, "e")):
        completed(client, records, ratio, candidate)
    job_id, attempt = claimed(client, records)
    records.complete(job_id, attempt, results.wrong())
    job_id, attempt = claimed(client, records)
    records.fail(job_id, attempt, EVIL)
    submit(client)
    page = shown(client)
    assert "1 worker takes jobs; 1 job queued, 0 being judged." in page.text
    for told in ("gpu0@node", "Wrong result", "Passed", "Failed", "Queued", "on NVIDIA H200"):
        assert told in page.text, told
    rows = page.text.split("95 % interval")[1]
    assert rows.index("3.00×") < rows.index("1.60×") < rows.index("1.50×")
    assert "Against class Model (dddddddd) on NVIDIA H200" in page.text
    assert " = kernel relu aaaaaaaa" in rows and " 2 kernel relu eeeeeeee" in rows, (
        "1.5 and 1.6 cannot be told apart, 3.0 can"
    )


def test_a_worker_in_quarantine(client: FlaskClient, redis: Redis) -> None:
    Heartbeat(redis, "gpu0@node", Device("GPU-1", 0, "NVIDIA H200", "h200"), 4, {}, lambda: EVIL).beat()
    page = shown(client)
    assert "Every worker is quarantined" in page.text and EVIL in page.text


def test_with_keys_one_sees_ones_own_and_a_browser_gets_in_with_the_key_as_password(
    redis: Redis, tmp_path: Path
) -> None:
    records = JobStore(redis, 60)
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json")) as app:
        alice, bob = (holder(app, name, Scope.SUBMIT, Scope.READ) for name in ("alice", "bob"))
        job_id = alice("POST", "/evaluate", json=BODY).get_json()["job_id"]
        claim = records.claim("w")
        assert claim is not None and records.complete(job_id, claim.attempt, results.passed(2.0))
        browser = app.test_client()
        page = shown(browser, Authorization=basic(alice.secret))
        assert "Jobs of the key alice" in page.text and job_id[:8] in page.text and "NVIDIA H200" in page.text
        other = shown(browser, Authorization=basic(bob.secret))
        assert job_id[:8] not in other.text and "NVIDIA H200" not in other.text
        for path, seen in ((f"/job/{job_id}/report", 200), (f"/job/{job_id}", 200), ("/jobs", 200)):
            assert browser.get(path, headers={"Authorization": basic(alice.secret)}).status_code == seen
        assert browser.get(f"/job/{job_id}/report", headers={"Authorization": basic(bob.secret)}).status_code == 404
        report = browser.get(f"/job/{job_id}/report", headers={"Authorization": basic(alice.secret)})
        assert "Bearer $KERNEL_EVAL_API_KEY" in report.get_data(as_text=True)
        assert alice.secret not in report.get_data(as_text=True)
        assert_a_browser_cannot_be_used(app, basic(alice.secret), job_id)


def assert_a_browser_cannot_be_used(app: APIFlask, header: str, job_id: str) -> None:
    """By another site's page: a browser sends the password along with whatever it is made to ask."""
    browser = app.test_client()
    for method, path in (("DELETE", f"/job/{job_id}"), ("POST", "/evaluate"), ("POST", "/")):
        assert browser.open(path, method=method, headers={"Authorization": header}).status_code == 401
    foreign = {"Authorization": header, "Sec-Fetch-Site": "cross-site"}
    assert browser.get("/", headers={**foreign, "Sec-Fetch-Mode": "no-cors"}).status_code == 401
    assert browser.get("/", headers={**foreign, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_a_stranger_is_told_how_to_show_a_key(redis: Redis, tmp_path: Path) -> None:
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json")) as app:
        answer = app.test_client().get("/", headers=HTML)
        page = Page(answer.get_data(as_text=True))
        assert_sound(page)
        assert answer.status_code == 401 and answer.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert "give the API key as the password" in page.text
        plain = app.test_client().get("/")
        assert (plain.headers["WWW-Authenticate"], plain.content_type) == ("Bearer", "application/problem+json")


def basic(secret: str) -> str:
    return f"Basic {base64.b64encode(f':{secret}'.encode()).decode()}"
