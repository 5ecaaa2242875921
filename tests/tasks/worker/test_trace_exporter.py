"""Traces: one for each job, from POST to its end, and nothing lost but traces when the collector is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

pytest.importorskip("opentelemetry.sdk", reason="an extra that an offline GPU box lacks")

from flask.testing import FlaskClient
from redis import Redis

from api import create_app
from api.http.context import KEY, AppContext
from domain.job import Stage
from domain.settings import settings
from tasks.jobs import trace_queue
from tasks.jobs.job_store import JobStore
from tasks.worker.trace_exporter import Tracing
from tests.api.payloads import RELU, kernel
from tests.otlp import Collector, Span, collector
from tests.tasks.example_jobs import EVALUATE, report

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def traced_to(url: str) -> Iterator[FlaskClient]:
    """The settings of this process name that endpoint inside the block; with a client of an API that has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        settings.cache_clear()
        app = create_app()
        try:
            yield app.test_client()
        finally:
            context: AppContext = app.extensions[KEY]
            context.long_poll.close()
    settings.cache_clear()


@pytest.fixture
def kept() -> Iterator[Collector]:
    with collector() as listening:
        yield listening


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, 60)


def judged(records: JobStore, job_id: str) -> None:
    """In two attempts; the first is lost while it builds."""
    first = records.claim("gpu0@a")
    assert first is not None and records.requeue(job_id, first.attempt, "its worker died")
    second = records.claim("gpu1@b")
    assert second is not None
    for stage in (Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.VALIDATE, Stage.TIME):
        assert records.enter_stage(job_id, second.attempt, stage)
    assert records.complete(job_id, second.attempt, report().body(job_id))


def test_a_job_is_one_trace_from_post_to_its_result(redis: Redis, records: JobStore, kept: Collector) -> None:
    with traced_to(kept.url) as client:
        tracing = Tracing(redis, records)
        tracing.send()
        body = {"kernel": kernel(RELU, "torch")}
        headers = {"traceparent": CALLER, "X-Request-Id": "mine"}
        job_id = client.post("/evaluate", json=body, headers=headers).get_json()["job_id"]
        judged(records, job_id)
        tracing.send()
    spans = {span.name: span for span in kept.spans}
    assert [span.name for span in sorted(kept.spans, key=lambda span: (span.began, -span.ended)) if span.parent] == [
        *("job", "queued", "build", "queued", "build", "wait_for_device", "load", "validate", "time"),
    ]
    assert {span.trace for span in kept.spans} == {job_id.replace("-", "")}
    assert len({span.span for span in kept.spans}) == len(kept.spans) == 10
    post, job = spans["POST /evaluate"], spans["job"]
    assert (post.parent, post.service, post.links) == ("", "kernel-eval-api", [CALLER.split("-")[1]])
    assert (post.attributes["kernel_eval.request_id"], post.attributes["http.response.status_code"]) == ("mine", 202)
    assert (job.parent, job.service, job.error) == (post.span, "kernel-eval-worker", False)
    assert (job.attributes["kernel_eval.cause"], job.attributes["kernel_eval.attempts"]) == ("passed", 2)
    stages = [span for span in kept.spans if span.parent == job.span]
    assert len(stages) == 8
    assert all(job.began <= span.began <= span.ended <= job.ended for span in stages)
    assert [(span.name, span.attributes["kernel_eval.worker"]) for span in stages if span.error] == [
        ("build", "gpu0@a")
    ]
    assert RELU not in str(kept.spans) and "its worker died" not in str(kept.spans)


def test_a_batch_is_a_trace_for_each_of_its_jobs(redis: Redis, records: JobStore, kept: Collector) -> None:
    with traced_to(kept.url) as client:
        tracing = Tracing(redis, records)
        tracing.send()
        jobs = client.post("/batch", json={"jobs": [{"kernel": kernel(RELU, "torch")}] * 3}).get_json()["jobs"]
        for job in jobs:
            records.cancel(job["job_id"])
        tracing.send()
    for job in jobs:
        own = [span for span in kept.spans if span.trace == job["job_id"].replace("-", "")]
        assert sorted(span.name for span in own) == ["POST /batch", "job", "queued"]
        (whole,) = [span for span in own if span.name == "job"]
        assert (whole.attributes["kernel_eval.state"], whole.attributes["kernel_eval.cause"]) == (
            *("cancelled", "requested"),
        )


def test_without_an_endpoint_nothing_is_written(redis: Redis, records: JobStore) -> None:
    app = create_app()
    job_id = app.test_client().post("/evaluate", json={"kernel": kernel(RELU, "torch")}).get_json()["job_id"]
    records.cancel(job_id)
    assert redis.keys("traces:*") == []


def test_a_broken_collector_costs_traces_and_nothing_else(redis: Redis, records: JobStore, kept: Collector) -> None:
    def end_one() -> Span | None:
        job_id = str(uuid4())
        records.create(job_id, EVALUATE)
        records.cancel(job_id)
        tracing.send()
        found = [span for span in kept.spans if span.trace == job_id.replace("-", "") and span.name == "job"]
        return found[0] if found else None

    with traced_to(kept.url):
        tracing = Tracing(redis, records)
        tracing.send()
        assert end_one() is not None
        kept.status = 400
        asked = kept.asked
        assert end_one() is None
        assert kept.asked > asked, "it was tried"
        kept.status = 200
        assert end_one() is not None


def test_a_collector_that_never_answers_holds_nobody_up(redis: Redis, records: JobStore) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(20)
        held: list[socket.socket] = []
        with traced_to(f"http://127.0.0.1:{silent.getsockname()[1]}") as client:
            tracing = Tracing(redis, records)
            tracing.start()
            try:
                for _ in range(5):
                    answer = client.post("/evaluate", json={"kernel": kernel(RELU, "torch")})
                    assert answer.status_code == 202
                    judged(records, answer.get_json()["job_id"])
                    if not held:
                        held.append(silent.accept()[0])  # From here on the thread waits for its answer.
                assert records.counters()["completed"] == 5
            finally:
                began = time.monotonic()
                tracing.stop()
                held[0].close()
    # Twice its bound: the machine may be busy.
    assert time.monotonic() - began < 10


def test_what_nobody_sends_is_bounded(redis: Redis, records: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_queue, "WAITING", 5)
    for number in range(20):
        trace_queue.put(redis, [{"job": str(number)}])
    assert trace_queue.take(redis, 100) == [{"job": str(number)} for number in range(15, 20)]
    assert trace_queue.take(redis, 100) == []


def test_an_endpoint_without_the_packages_stops_the_worker() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None; "
        "from tasks.worker.lifecycle import require_telemetry_packages; require_telemetry_packages()"
    )
    for endpoint, status in (("http://127.0.0.1:9", 1), ("", 0)):
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == status
        assert ("--group telemetry" in done.stderr) == bool(status)
