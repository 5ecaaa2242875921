"""A job followed to its end by both kinds of client: events in their order, broken connections, reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

import kernel_eval_client as ke
from kernel_eval_client.errors import JobFailed, ServiceError, StillRunning, UnknownJob, Unreachable
from kernel_eval_client.events import EventStream
from tests.client.conftest import Asked
from tests.client.failing import Reply, Told, job, listening, problem
from tests.conftest import free_port

TWICE = "def kernel_fn(x):\n    return x * 2\n"
QUICK = ke.Retry(patience_s=5.0, first_pause_s=0.01, max_pause_s=0.02)
Follow = Callable[[str, str], list[ke.Event]]


@pytest.fixture(params=["sync", "async"])
def follow(request: pytest.FixtureRequest) -> Follow:
    """Every event of a job, by either client."""

    def synchronous(url: str, job_id: str) -> list[ke.Event]:
        with ke.Client(url, retry=QUICK) as client:
            return list(client.events(job_id))

    def asynchronous(url: str, job_id: str) -> list[ke.Event]:
        async def followed() -> list[ke.Event]:
            async with ke.AsyncClient(url, retry=QUICK) as client:
                return [event async for event in client.events(job_id)]

        return asyncio.run(followed())

    return synchronous if request.param == "sync" else asynchronous


def test_a_real_job_from_its_beginning_to_its_report(url: str, client: ke.Client, follow: Follow) -> None:
    submitted = client.submit(ke.Submission(ke.torch(TWICE), num_trials=1))
    told = follow(url, submitted.job_id)
    assert [event.data["stage"] for event in told if event.name == "stage"][:2] == ["queued", "build"]
    assert told[-1].name == "done" and told[-1].data["summary"]["verdict"] == "passed"
    assert follow(url, submitted.job_id) == told, "the same, when it has ended"
    page = client.report(submitted.job_id)
    assert page.startswith("<!doctype html>") and submitted.job_id in page


class Breaking(ThreadingHTTPServer):
    """Tells one event a connection and breaks it, as far as there are any."""

    parts = (
        b'retry: 2000\n\nid: 1.0.0\nevent: stage\ndata: {"stage": "queued"}\n\nid: 2.0.0\nevent: sta',
        b': still there\n\nid: 2.0.0\nevent: stage\ndata: {"stage": "build"}\n\n',
        b'id: 2.0.1\nevent: done\ndata: {"state": "completed"}\n\n',
    )

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    server: Breaking

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Last-Event-ID"))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        # Of a stream that is cut off in the middle.
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self.wfile.write(self.server.parts[len(self.server.asked) - 1])

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def breaking() -> Iterator[Breaking]:
    server = Breaking()
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_connections_that_break_are_opened_anew_behind_the_last_event(breaking: Breaking, follow: Follow) -> None:
    told = follow(f"http://127.0.0.1:{breaking.server_port}", "j1")
    assert [(event.id, event.data.get("stage")) for event in told] == [
        ("1.0.0", "queued"),
        ("2.0.0", "build"),
        ("2.0.1", None),
    ]
    assert breaking.asked == [None, "1.0.0", "2.0.0"]


def test_whose_fault_it_is(follow: Follow) -> None:
    with listening(Told(problem(404, "unknown-job"))) as told, pytest.raises(UnknownJob):
        follow(told.url, "j1")
    with listening(Told(problem(503, "waiters-full"), Reply(204))) as told:
        assert follow(told.url, "j1") == []
    assert len(told.seen) == 2
    impatient = ke.Retry(patience_s=0.0)
    with ke.Client(f"http://127.0.0.1:{free_port()}", retry=impatient) as client, pytest.raises(Unreachable):
        next(client.events("j1"))
    with listening(Told(problem(500))) as told, ke.Client(told.url, retry=impatient) as client:
        with pytest.raises(ServiceError) as raised:
            next(client.events("j1"))
        assert not isinstance(raised.value, JobFailed)


def test_connections_without_an_event_are_opened_after_growing_pauses() -> None:
    stream = EventStream("j1", ke.Retry(first_pause_s=1.0, max_pause_s=60.0), "http://127.0.0.1")
    pauses = []
    for _ in range(3):
        stream.headers()
        pauses.append(stream.pause(None))
    assert all(least <= pause <= 2 * least for least, pause in zip((0.5, 1.0, 2.0), pauses, strict=True))
    stream.headers()
    for line in ("id: 1", "event: stage", 'data: {"stage": "queued"}', ""):
        stream.line(line)
    assert stream.pause(None) == 0.0


def test_a_report_is_waited_for(ask: Asked) -> None:
    with listening(Told(Reply(202), Reply(200, job("completed")), Reply(200, {"page": "of a job"}))) as told:
        assert "of a job" in ask(told.url, QUICK, "report", "j1")
    assert [seen.path for seen in told.seen] == ["/job/j1/report", "/job/j1", "/job/j1/report"]
    with listening(Told(Reply(202), Reply(200, job("running")))) as told, pytest.raises(StillRunning):
        ask(told.url, QUICK, "report", "j1", max_wait_s=0.0)
