"""One key's work in all that another key can have of the service: no text, digest or id of it is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from apiflask import APIFlask
from redis import Redis
from werkzeug.test import TestResponse

from domain.access import Scope
from domain.job import Stage
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import CPU
from tests.api.keyed import Holder, app_with, holder
from tests.api.payloads import RELU, kernel
from tests.tasks.artifacts import TEXT, listed

NAME = "its_owners_name:v2"
SOURCE, REFERENCE, OUTPUT, DIGEST = "word_of_the_source", "word_of_the_reference", "printed_by_the_kernel", "a11ce" * 10
BODY = {
    "custom_kernel": kernel(f"# {SOURCE}\n{RELU}", "torch"),
    "ref_kernel": kernel(f"# {REFERENCE}\n{RELU}", "torch"),
    "artifacts": ["ptx"],
    "name": NAME,
}
ACCEPTED = ("application/json", "text/html")
QUERIES = ("", "?limit=1", "?state=completed", "?state=queued", "?state=running", "?cursor=99999999999")


@dataclass(frozen=True)
class Work:
    """What one key has handed in: a completed job, a running one, and a batch that waits."""

    done: str
    running: str
    batch: str
    queued: tuple[str, ...]

    @property
    def marks(self) -> set[str]:
        return {self.done, self.running, self.batch, *self.queued, NAME, OUTPUT, DIGEST, TEXT.splitlines()[0]}


@pytest.fixture
def keyed(redis: Redis, tmp_path: Path) -> Iterator[APIFlask]:
    Heartbeat(redis, "w", CPU, 1, {}).beat()
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json")) as app:
        yield app


@pytest.fixture
def alice(keyed: APIFlask) -> Holder:
    return holder(keyed, "alice", Scope.SUBMIT, Scope.READ)


@pytest.fixture
def mallory(keyed: APIFlask) -> Holder:
    return holder(keyed, "mallory", *Scope)


@pytest.fixture
def work(alice: Holder, redis: Redis) -> Work:
    records = JobStore(redis, 60)
    done, running = (str(alice("POST", "/compare", json=BODY).get_json()["job_id"]) for _ in range(2))
    report = listed()
    report = replace(report, outcome=replace(report.outcome, output=OUTPUT, digest=DIGEST))
    claim = records.claim("w")
    assert claim is not None and claim.job_id == done
    assert records.complete(done, claim.attempt, report.body(done), report.texts)
    claim = records.claim("w")
    assert claim is not None and claim.job_id == running
    records.enter_stage(running, claim.attempt, Stage.BUILD)
    batch = alice("POST", "/batch", json={"jobs": [BODY] * 2}).get_json()
    return Work(done, running, batch["batch_id"], tuple(entry["job_id"] for entry in batch["jobs"]))


def readable(app: APIFlask, work: Work, job_id: str) -> list[tuple[str, bool]]:
    """Every path that GET has, and whether it names one of that key's jobs or its batch."""
    paths = []
    for rule in app.url_map.iter_rules():
        if "GET" in (rule.methods or ()):
            given = {"job_id": job_id, "batch_id": work.batch, "side": "candidate", "name": "add.ptx", "filename": "x"}
            with app.test_request_context():
                path = app.url_for(rule.endpoint, **{name: given[name] for name in rule.arguments})
            paths.append((path, bool(rule.arguments & {"job_id", "batch_id"})))
    return paths


def everything(app: APIFlask, who: Holder, work: Work) -> Iterator[tuple[str, bool, TestResponse]]:
    """All that GET gives to that key, as JSON and as pages. A job that goes on has a stream without an end."""
    for job_id in (work.done, work.running):
        for path, names_it in readable(app, work, job_id):
            if path.endswith("/events") and job_id == work.running:
                continue
            for query in QUERIES if path == "/jobs" else ("",):
                for accepted in ACCEPTED:
                    headers = {"Authorization": f"Bearer {who.secret}", "Accept": accepted}
                    yield path + query, names_it, who.client.get(path + query, headers=headers)


def test_its_owner_reads_all_of_it(keyed: APIFlask, alice: Holder, work: Work) -> None:
    texts = [response.get_data(as_text=True) for _, _, response in everything(keyed, alice, work)]
    assert {mark for mark in work.marks if not any(mark in text for text in texts)} == set()


def test_another_key_reads_none_of_it_wherever_it_looks(
    keyed: APIFlask, alice: Holder, mallory: Holder, work: Work
) -> None:
    ids = {work.done, work.running, work.batch}
    hidden = work.marks | {SOURCE, REFERENCE, alice.key_id, alice.secret, "alice"}
    for path, names_it, response in everything(keyed, mallory, work):
        said = response.get_data(as_text=True) + str(response.headers)
        # A path that names a job is repeated in the problem, which is that of an unknown job.
        assert response.status_code == 404 or not names_it, path
        assert {mark for mark in hidden - (ids if names_it else set()) if mark in said} == set(), path
    stream = mallory("GET", f"/job/{work.running}/events")
    assert stream.status_code == 404 and stream.content_type == "application/problem+json"


def test_pages_of_several_jobs_and_repeats_are_their_owners(alice: Holder, mallory: Holder, work: Work) -> None:
    paths = [f"/side-by-side?first={work.done}&second={work.running}", f"/kernel?name={NAME}"]
    assert [alice("GET", path).status_code for path in paths] == [200, 200]
    assert [mallory("GET", path).status_code for path in paths] == [404, 404]
    own = mallory("POST", "/evaluate", json={"kernel": kernel(RELU, "torch")}).get_json()["job_id"]
    assert mallory("GET", f"/side-by-side?first={own}&second={work.done}").status_code == 404
    assert {mallory("POST", f"/job/{work.done}/{repeat}").status_code for repeat in ("again", "confirm")} == {404}
    for path in (f"/jobs?name={NAME}", f"/jobs?batch_id={work.batch}", "/jobs?text=owner", "/suite"):
        found = mallory("GET", path).get_data(as_text=True)
        assert not {work.done, work.running, *work.queued} & set(found.split('"')), path


def test_another_key_that_hands_in_the_same_is_told_nothing(alice: Holder, mallory: Holder, work: Work) -> None:
    again = {**BODY, "reuse": "allow", "name": None}
    own, other = (who("POST", "/compare", json=again) for who in (alice, mallory))
    assert (own.status_code, own.get_json()["reused_from"]["job_id"]) == (200, work.done)
    assert other.status_code == 202 and not [mark for mark in work.marks if mark in other.get_data(as_text=True)]
