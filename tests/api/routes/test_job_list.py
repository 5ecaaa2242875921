"""The list of jobs: its filters as JSON and as a page, its pages of older jobs, and with API keys only one's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from domain.access import Scope
from domain.job import Stage
from domain.result import Status
from tasks.jobs.job_search import MAX_SEARCHED, JobFilter, search
from tasks.jobs.job_store import JobStore
from tests.api import results
from tests.api.keyed import app_with, holder
from tests.api.payloads import RELU, kernel
from tests.api.routes.test_jobs import claimed, submit
from tests.api.routes.test_report import EVIL, HTML, Page, assert_sound, sound_page

BODY = {"kernel": kernel(RELU, "torch")}


def shown(client: FlaskClient, query: str = "", **headers: str) -> Page:
    answer = client.get(f"/jobs{query}", headers={**HTML, **headers})
    assert answer.headers["Vary"] == "Accept"
    return sound_page(answer)


def completed(client: FlaskClient, records: JobStore, redis: Redis, body: dict[str, Any], name: str = "") -> str:
    job_id, attempt = claimed(client, records, name or None)
    records.enter_stage(job_id, attempt, Stage.VALIDATE)
    assert records.complete(job_id, attempt, body)
    return job_id


@pytest.fixture
def jobs(client: FlaskClient, records: JobStore, redis: Redis) -> dict[str, str]:
    made = {
        "fast": completed(client, records, redis, results.passed(3.0, candidate="a" * 64), "softmax"),
        "slow": completed(client, records, redis, results.passed(0.5, candidate="b" * 64), "gelu"),
        "wrong": completed(client, records, redis, results.wrong("Row 7 is NaN"), "softmax"),
        "unbuilt": completed(client, records, redis, results.failed(Status.COMPILE_ERROR, EVIL)),
    }
    return made | {"queued": submit(client)}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["queued", "unbuilt", "wrong", "slow", "fast"]),
        ("verdict=passed", ["slow", "fast"]),
        ("name=softmax", ["wrong", "fast"]),
        ("name=softmax&verdict=passed", ["fast"]),
        ("state=queued&verdict=&name=", ["queued"]),
        ("reference=dddd", ["slow", "fast"]),
        ("text=row+7", ["wrong"]),
        ("text=aaaaaa", ["fast"]),
        ("kernel_type=cuda", []),
        ("kernel_type=torch&limit=2", ["queued", "unbuilt"]),
        ("text=nothing+like+that", []),
    ],
)
def test_each_filter_as_json_and_as_a_page(
    client: FlaskClient, jobs: dict[str, str], query: str, found: list[str]
) -> None:
    listed = client.get(f"/jobs?{query}").get_json()
    assert [job["job_id"] for job in listed["jobs"]] == [jobs[name] for name in found]
    links = [link["href"] for link in shown(client, f"?{query}").those("a")]
    assert [link for link in links if link.endswith("/report")] == [f"/job/{jobs[name]}/report" for name in found]


def test_a_job_that_did_not_pass_says_what_to_do(client: FlaskClient, jobs: dict[str, str]) -> None:
    listed = {job["job_id"]: job["next"] for job in client.get("/jobs").get_json()["jobs"]}
    assert listed[jobs["fast"]] is None and "first mismatch" in listed[jobs["wrong"]]
    assert listed[jobs["unbuilt"]] == client.get(f"/job/{jobs['unbuilt']}").get_json()["next"]
    assert listed[jobs["queued"]] == f"Wait for the verdict with `GET /job/{jobs['queued']}?wait=60`."


def test_the_page_shows_what_was_asked_for_and_escapes_it(client: FlaskClient, jobs: dict[str, str]) -> None:
    page = shown(client, "?verdict=wrong_result&text=" + "%3Cscript%3E")
    assert {"id": "text", "name": "text", "type": "search", "value": "<script>"} in page.those("input")
    assert {"value": "wrong_result", "selected": None} in page.those("option")
    assert "0 jobs" in page.text and "5 records were searched." in page.text
    assert "softmax" in shown(client, f"?text={jobs['fast']}").text


def test_older_jobs_keep_the_filters(client: FlaskClient, jobs: dict[str, str]) -> None:
    seen: list[str] = []
    page = shown(client, "?limit=1&verdict=passed")
    while True:
        links = [link["href"] for link in page.those("a")]
        seen += re.findall(r"/job/([^/]+)/report", " ".join(links))
        older = [link for link in links if "cursor=" in link and "refresh" not in link]
        if not older:
            break
        page = shown(client, older[0].removeprefix("/jobs"))
        assert "/jobs?verdict=passed&limit=1" in [link["href"] for link in page.those("a")], "the newest ones"
    assert seen == [jobs["slow"], jobs["fast"]]


def test_a_page_reloads_itself_when_asked(client: FlaskClient, jobs: dict[str, str]) -> None:
    assert "Refresh" not in client.get("/jobs", headers=HTML).headers
    answer = client.get("/jobs?refresh=on&verdict=passed", headers=HTML)
    assert answer.headers["Refresh"] == "3"
    assert {"href": "/jobs?verdict=passed"} in Page(answer.get_data(as_text=True)).those("a"), "a way to stop it"
    assert client.get("/?refresh=on", headers=HTML).headers["Refresh"] == "3"


@pytest.mark.parametrize(
    "query", ["verdict=great", "kernel_type=rust", "limit=0", "text=" + "x" * 201, "refresh=maybe"]
)
def test_a_value_that_cannot_be(client: FlaskClient, query: str) -> None:
    assert client.get(f"/jobs?{query}").status_code == 400
    answer = client.get(f"/jobs?{query}", headers=HTML)
    assert (answer.status_code, answer.content_type) == (400, "text/html; charset=utf-8")
    assert_sound(Page(answer.get_data(as_text=True)))


def test_a_search_is_bounded_and_goes_on_from_where_it_was(
    client: FlaskClient, records: JobStore, redis: Redis
) -> None:
    rare = submit(client)
    stamps = redis.zscore("jobs:all", rare)
    stored = redis.hgetall(f"job:{rare}")
    with redis.pipeline() as pipe:
        for index in range(MAX_SEARCHED):
            at = f"{stamps + 1 + index:.6f}"
            pipe.hset(f"job:{index}", mapping=stored | {b"submitted_at": at})
            pipe.zadd("jobs:all", {str(index): at})
        pipe.execute()
    wanted = JobFilter(text=rare)
    first = search(records, wanted, limit=5)
    assert (first.views, first.searched) == ([], MAX_SEARCHED)
    second = search(records, wanted, limit=5, before=first.cursor)
    assert ([view.job_id for view in second.views], second.cursor) == ([rare], None)


def test_with_keys_a_list_holds_ones_own_and_the_machine_sees_those_of_a_key(redis: Redis, tmp_path: Path) -> None:
    file = {"API_KEYS_FILE": str(tmp_path / "keys.json")}
    with app_with(REQUIRE_API_KEYS="on", **file) as app:
        alice, bob = (holder(app, name, Scope.SUBMIT, Scope.READ) for name in ("alice", "bob"))
        job_id = alice("POST", "/evaluate", json=BODY).get_json()["job_id"]
        assert bob("GET", f"/jobs?text={job_id}").get_json()["jobs"] == []
        assert [job["job_id"] for job in alice("GET", "/jobs?kernel_type=torch").get_json()["jobs"]] == [job_id]
        assert alice("GET", "/jobs?key=bob").status_code == 400
    with app_with(REQUIRE_API_KEYS="off", **file) as app, app.test_client() as local:
        other = submit(local)
        assert [job["job_id"] for job in local.get("/jobs").get_json()["jobs"]] == [other, job_id]
        for key in ("alice", bob.secret.split("_")[1]):
            found = [job["job_id"] for job in local.get(f"/jobs?key={key}").get_json()["jobs"]]
            assert found == ([job_id] if key == "alice" else [])
