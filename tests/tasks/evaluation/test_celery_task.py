"""The evaluation task's logic: every way that a pipeline can end is one end of the job."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Thread

import pytest
from redis import Redis

from domain.fault import InfrastructureFault, JobCancelled
from domain.job import Stage, State
from domain.paths import ROOT
from domain.request import Request
from domain.result import Report
from tasks.evaluation.attempt_monitor import STUCK_EXIT
from tasks.evaluation.celery_task import Pipeline, execute
from tasks.jobs import job_store
from tasks.jobs.job_queue import COMMON, Message
from tasks.jobs.job_store import MAX_ATTEMPTS, JobStore
from tasks.jobs.submit import message_id
from tasks.runtime.job_callbacks import JobCallbacks
from tests.conftest import die_with_parent
from tests.tasks.example_jobs import EVALUATE, report, seen, until


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=60)


def run(records: JobStore, pipeline: Pipeline, attempt: int = 1) -> None:
    execute(records, records, Message(message_id("a", attempt)), "w", pipeline)


def good(request: Request, callbacks: JobCallbacks) -> Report:
    assert request == EVALUATE
    for stage in (Stage.BUILD, Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.VALIDATE, Stage.TIME):
        callbacks.on_stage(stage)
    return report()


def test_a_report_completes_the_job(records: JobStore) -> None:
    records.create("a", EVALUATE)
    run(records, good)
    view = seen(records, "a")
    assert (view.state, view.worker, view.result) == (State.COMPLETED, "w", report().body("a"))
    stages = ["queued", "build", "wait_for_device", "load", "validate", "time", "done"]
    assert [entry.stage for entry in view.timeline] == stages


def pause(records: JobStore, *job_ids: str) -> None:
    """Has jobs fail until only their last attempts are left."""
    for job_id in job_ids:
        records.create(job_id, EVALUATE)
    for attempt in range(1, MAX_ATTEMPTS):
        assert all(records.claim("w") is not None for _ in job_ids)
        for job_id in job_ids:
            records.requeue(job_id, attempt, "its worker died")


def test_the_end_of_a_last_attempt_lets_the_next_one_begin(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reconciler: a thousand that paused would wait for two seconds each."""
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 0.001)
    pause(records, "a", "b", "c")
    redis.delete(COMMON)
    until(lambda: records.queue.end_pause() == ("a", COMMON))
    run(records, good, MAX_ATTEMPTS)
    assert seen(records, "a").state is State.COMPLETED and redis.llen(COMMON) == 1
    assert [each.jobs for each in records.queue.all()] == [1], "c waits for b"
    run(records, good, MAX_ATTEMPTS)
    assert seen(records, "b").state is State.COMPLETED and seen(records, "c").state is State.QUEUED


def test_a_last_attempt_has_ended_though_redis_cannot_look_for_the_next_one(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 0.001)
    pause(records, "a", "b")
    until(lambda: records.queue.end_pause() == ("a", COMMON))
    redis.delete("jobs:last_attempt")
    redis.rpush("jobs:last_attempt", "of another type")
    run(records, good, MAX_ATTEMPTS)
    assert seen(records, "a").state is State.COMPLETED
    assert "the reconciler will end the next job's pause: ResponseError" in caplog.text
    redis.delete("jobs:last_attempt")
    assert records.queue.end_pause() == ("b", COMMON)


def test_the_verdict_so_far_is_shown_while_the_job_is_timed(records: JobStore) -> None:
    shown: list[tuple[Stage, bool | None]] = []

    def look(until_right: bool | None) -> None:
        until(lambda: seen(records, "a").interim_correct is until_right)
        shown.append((seen(records, "a").stage, until_right))

    def told(request: Request, callbacks: JobCallbacks) -> Report:
        callbacks.on_stage(Stage.VALIDATE)
        look(None)
        callbacks.on_interim_result(True)
        look(True)
        callbacks.on_stage(Stage.TIME)
        until(lambda: seen(records, "a").stage is Stage.TIME)
        look(True)
        callbacks.on_interim_result(False)
        look(False)
        return report()

    records.create("a", EVALUATE)
    run(records, told)
    stages = [Stage.VALIDATE, Stage.TIME, Stage.TIME]
    assert shown[1:] == list(zip(stages, [True, True, False], strict=True))
    assert seen(records, "a").interim_correct is None, "the result has the last word"


def test_another_attempt_knows_no_verdict_yet(records: JobStore) -> None:
    records.create("a", EVALUATE)
    assert records.claim("w") is not None
    assert records.enter_stage("a", 1, Stage.TIME, interim_correct=True)
    assert seen(records, "a").interim_correct is True
    assert records.requeue("a", 1, "its worker died")
    assert seen(records, "a").interim_correct is None


def test_a_message_that_came_twice_runs_once(records: JobStore) -> None:
    records.create("a", EVALUATE)
    runs: list[Request] = []

    def counted(request: Request, callbacks: JobCallbacks) -> Report:
        runs.append(request)
        run(records, counted)
        return good(request, callbacks)

    run(records, counted)
    run(records, counted)
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("fault", "words"), [(InfrastructureFault("the GPU does not start"), "the GPU"), (KeyError("x"), "KeyError")]
)
def test_our_faults_are_tried_again_and_then_fail(
    records: JobStore, redis: Redis, fault: Exception, words: str
) -> None:
    def broken(*_: object) -> Report:
        raise fault

    records.create("a", EVALUATE)
    for attempt in range(1, MAX_ATTEMPTS):
        run(records, broken, attempt)
        assert seen(records, "a").state is State.QUEUED
        assert redis.llen("evaluate") == attempt, "the next attempt's message"
    run(records, broken, MAX_ATTEMPTS)
    view = seen(records, "a")
    assert view.state is State.FAILED
    assert view.error is not None and view.error.count(words) == MAX_ATTEMPTS
    assert redis.llen("evaluate") == MAX_ATTEMPTS - 1


def test_cancelling_stops_what_runs(records: JobStore) -> None:
    def patient(request: Request, callbacks: JobCallbacks) -> Report:
        callbacks.on_stage(Stage.LOAD)
        until(callbacks.cancelled)
        raise JobCancelled("as asked")

    records.create("a", EVALUATE)
    job = Thread(target=run, args=(records, patient))
    job.start()
    until(lambda: seen(records, "a").state is State.RUNNING)
    records.cancel("a")
    job.join()
    assert seen(records, "a").state is State.CANCELLED


def test_progress_stops_what_was_cancelled_or_given_up(records: JobStore) -> None:
    raised: list[str] = []

    def going_on(request: Request, callbacks: JobCallbacks) -> Report:
        callbacks.on_stage(Stage.LOAD)
        until(callbacks.cancelled)
        try:
            callbacks.on_stage(Stage.TIME)
        except Exception as error:
            raised.append(type(error).__name__)
            raise
        return report()

    records.create("a", EVALUATE)
    job = Thread(target=run, args=(records, going_on))
    job.start()
    until(lambda: seen(records, "a").state is State.RUNNING)
    assert records.requeue("a", 1, "given up for dead")
    job.join()
    assert seen(records, "a").state is State.QUEUED, "the attempt that was given up changes nothing"
    job = Thread(target=run, args=(records, going_on, 2))
    job.start()
    until(lambda: seen(records, "a").state is State.RUNNING)
    records.cancel("a")
    job.join()
    assert seen(records, "a").state is State.CANCELLED
    assert raised == ["Superseded", "JobCancelled"]


def test_an_owner_is_heard_while_it_works(records: JobStore, redis: Redis) -> None:
    def slow(request: Request, callbacks: JobCallbacks) -> Report:
        redis.delete("job:a:owner")
        until(lambda: redis.exists("job:a:owner"))
        assert records.abandoned() == []
        return report()

    records.create("a", EVALUATE)
    run(records, slow)
    assert seen(records, "a").state is State.COMPLETED


STUCK = """
import sys, time
from redis import Redis
from tasks.evaluation import attempt_monitor
from tasks.evaluation.celery_task import execute
from tasks.jobs.job_queue import Message
from tasks.jobs.job_store import JobStore
from domain.job import Stage

attempt_monitor.SLACK_S = -89.0
records = JobStore(Redis.from_url(sys.argv[1]), 60)

def stuck(request, callbacks):
    callbacks.on_stage(Stage.WAIT_FOR_DEVICE)
    time.sleep(2.0)
    print("waited", flush=True)
    callbacks.on_stage(Stage.LOAD)
    time.sleep(600)

execute(records, records, Message("a.1"), "w", stuck)
"""


def test_a_referee_that_hangs_ends_its_process_but_waiting_is_not_hanging(
    records: JobStore, redis: Redis, redis_url: str
) -> None:
    records.create("a", Request(kernel=EVALUATE.kernel, timeout=30))
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, redis_url],
        cwd=ROOT,
        env={**os.environ, "CELERY_BROKER_URL": redis_url},
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (STUCK_EXIT, b"waited\n")
    assert seen(records, "a").stage is Stage.LOAD
