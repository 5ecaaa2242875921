"""Server-sent events: every stage once, in order, resumable, and no more of them at once than there are places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from api.http.context import KEY, AppContext
from api.http.long_poll import LongPoll
from api.routes import events
from domain.job import Stage
from domain.result import Status
from tasks.jobs.job_store import JobStore
from tests.api import results
from tests.api.routes.test_jobs import claimed, submit

Event = tuple[str, str, dict[str, Any]]
STAGES = (Stage.BUILD, Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.VALIDATE, Stage.TIME)


class Streams:
    """The streams of a test, which are all closed when it ends: the places that they take are the app's."""

    def __init__(self, client: FlaskClient) -> None:
        self._client = client
        self._opened: list[TestResponse] = []

    def __call__(self, job_id: str, last: str = "") -> TestResponse:
        answer = self._client.get(f"/job/{job_id}/events", headers={"Last-Event-ID": last} if last else {})
        self._opened.append(answer)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return answer

    def close(self) -> None:
        for answer in self._opened:
            answer.close()
        self._opened.clear()


@pytest.fixture
def stream(client: FlaskClient) -> Iterator[Streams]:
    streams = Streams(client)
    yield streams
    streams.close()


def read(answer: TestResponse) -> Iterator[Event]:
    """Its events, as they come: id, name and data."""
    for part in answer.iter_encoded():
        lines = dict(line.split(": ", 1) for line in part.decode().splitlines() if line and not line.startswith(":"))
        if "event" in lines:
            yield lines["id"], lines["event"], json.loads(lines["data"])


def test_every_stage_as_it_begins_and_the_end(
    client: FlaskClient, stream: Streams, records: JobStore, redis: Redis
) -> None:
    job_id, attempt = claimed(client, records)
    answer = stream(job_id)
    assert answer.content_type.startswith("text/event-stream") and "no-cache" in answer.headers["Cache-Control"]
    coming = read(answer)
    assert [next(coming)[2]["stage"] for _ in range(2)] == ["queued", "build"]
    for stage in STAGES[1:]:
        records.enter_stage(job_id, attempt, stage)
        assert next(coming)[1:] == ("stage", {"job_id": job_id, **records_step(records, job_id)})
        if stage is Stage.VALIDATE:
            redis.hset(f"job:{job_id}", "right", "1")
            redis.publish("jobs:changed", job_id)
            assert next(coming)[1:] == ("verdict", {"job_id": job_id, "correct": True, "final": False})
    records.complete(job_id, attempt, results.passed(2.0))
    last, name, data = next(coming)
    assert (name, data["state"], data["summary"]["ratio"]) == ("done", "completed", 2.0)
    assert data["explanation"].startswith("It compiles") and data["report"] == f"/job/{job_id}/report"
    assert list(coming) == []
    assert client.get(f"/job/{job_id}/events", headers={"Last-Event-ID": last}).status_code == 204


def records_step(records: JobStore, job_id: str) -> dict[str, Any]:
    view = records.get(job_id)
    assert view is not None
    return view.timeline[-1].to_wire()


def test_what_was_seen_is_not_told_again(client: FlaskClient, stream: Streams, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    for stage in STAGES:
        records.enter_stage(job_id, attempt, stage)
    records.complete(job_id, attempt, results.wrong())
    told = list(read(stream(job_id)))
    assert [event[2].get("stage") for event in told] == ["queued", *STAGES, None, None]
    assert told[-2][1:] == ("verdict", {"job_id": job_id, "correct": False, "final": True}), (
        "as it would have been told"
    )
    for number, (event_id, _, _) in enumerate(told[:-1], start=1):
        assert list(read(stream(job_id, event_id))) == told[number:]


def test_a_verdict_is_told_before_the_timing_also_to_who_comes_later(
    client: FlaskClient, stream: Streams, records: JobStore
) -> None:
    job_id, attempt = claimed(client, records)
    for stage in (Stage.VALIDATE, Stage.TIME):
        records.enter_stage(job_id, attempt, stage)
    assert records.requeue(job_id, attempt, "its worker died")
    claim = records.claim("w")
    assert claim is not None
    for stage in (Stage.LOAD, Stage.VALIDATE):
        records.enter_stage(job_id, claim.attempt, stage)
    records.enter_stage(job_id, claim.attempt, Stage.VALIDATE, interim_correct=True)
    records.enter_stage(job_id, claim.attempt, Stage.TIME)
    coming = read(stream(job_id))
    told = [(name, data.get("stage")) for _, name, data in (next(coming) for _ in range(10))]
    assert [stage for _, stage in told] == [
        *("queued", "build", "validate", "time", "queued", "build", "load", "validate", None, "time")
    ]
    assert told[-2][0] == "verdict"


def test_of_what_was_not_compared_there_is_no_verdict(client: FlaskClient, stream: Streams, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    records.complete(job_id, attempt, results.failed(Status.COMPILE_ERROR, "no"))
    assert [name for _, name, _ in read(stream(job_id))] == ["stage", "stage", "done"]


@pytest.mark.parametrize("last", ["nonsense", "9999999.0.0", "1.2.3", "-1.0.0", "1"])
def test_an_id_that_is_none_of_ours_begins_anew(client: FlaskClient, stream: Streams, last: str) -> None:
    job_id = submit(client)
    assert next(read(stream(job_id, last)))[2]["stage"] == "queued"


def test_a_job_that_goes_back_to_the_queue(client: FlaskClient, stream: Streams, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    coming = read(stream(job_id))
    next(coming), next(coming)
    records.requeue(job_id, attempt, "the zygote died\n\ndata: forged")
    again = next(coming)
    assert again[1] == "stage" and again[2]["attempt"] == 2 and again[2]["reason"].endswith("data: forged")


def test_silence_is_filled_and_a_stream_ends(
    client: FlaskClient, stream: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.02)
    monkeypatch.setattr(events, "HELD_S", 0.2)
    told = stream(submit(client)).get_data(as_text=True)
    assert told.startswith("retry: 2000\n\nid: 1.0.0\nevent: stage\n") and ": still there\n\n" in told


def test_stream_beyond_the_waiting_places_is_refused(client: FlaskClient, stream: Streams) -> None:
    context: AppContext = client.application.extensions[KEY]
    taken = 0
    while context.long_poll.hub.try_enter():
        taken += 1
    for _ in range(2):
        context.long_poll.hub.leave()
    try:
        job_id = submit(client)
        held = [stream(job_id) for _ in range(2)]
        assert next(read(held[0]))[1] == "stage"
        full = client.get(f"/job/{job_id}/events")
        assert (full.status_code, full.headers["Retry-After"]) == (503, "5")
        assert full.get_json()["type"].endswith(":waiters-full")
        stream.close()  # The second was never read: its client went away at once.
        stream(job_id)
        stream.close()
        assert free_places(context.long_poll) == 2, "every place was given back"
        client.head(f"/job/{job_id}/events")
        assert free_places(context.long_poll) == 2, "every place was given back"
    finally:
        for _ in range(taken - 2):
            context.long_poll.hub.leave()


def free_places(long_poll: LongPoll) -> int:
    """How many more clients may wait."""
    free = 0
    while long_poll.hub.try_enter():
        free += 1
    for _ in range(free):
        long_poll.hub.leave()
    return free


def test_an_unknown_job(client: FlaskClient) -> None:
    answer = client.get("/job/nope/events")
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")
