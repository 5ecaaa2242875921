"""Background threads: none of them ends by an exception, and each says that it fails."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from threading import Event

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from tasks.evaluation import self_test
from tasks.fleet.heartbeat import Heartbeat, workers
from tasks.fleet.quarantine import CONSECUTIVE_FAULTS, FAULTS, Quarantine
from tasks.jobs.job_notifier import CHANNEL, LISTENER, JobNotifier
from tasks.jobs.job_store import JobStore
from tasks.node import periodic_thread
from tasks.node.device_info import CPU
from tasks.node.periodic_thread import PeriodicThread
from tasks.worker.gpu_sampler import CardSampler
from tasks.worker.reconciler import Reconciler
from tests.tasks.example_jobs import EVALUATE, until

WAIT_S = 10.0
NO_PROCESS = BlockingIOError(11, "Resource temporarily unavailable")
"""What Popen raises where no process can be forked."""


@pytest.mark.parametrize("error", [NO_PROCESS, RuntimeError("can't start new thread"), RedisConnectionError("gone")])
def test_periodic_thread_outlives_exceptions_of_its_turns(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    turns, missed, again = [], [], Event()

    def turn() -> None:
        turns.append(1)
        if len(turns) < 4:
            raise error
        again.set()

    def fail_too() -> None:
        missed.append(1)
        raise KeyError("in the cleaning up")

    looping = PeriodicThread("reconciler", turn, 0.01, missed=fail_too)
    with caplog.at_level(logging.WARNING):
        looping.start()
        assert again.wait(WAIT_S), "the thread has ended"
        until(lambda: looping.failing is None)
        looping.stop()
    assert len(missed) == 3
    own = [record for record in caplog.records if "retrying" in record.message and "clean up" not in record.message]
    assert len(own) == 1, "one line for a row of failures"
    assert bool(own[0].exc_info) is not isinstance(error, RedisConnectionError), "a fault of ours has its traceback"


def test_a_worker_says_which_of_its_loops_fail(redis: Redis) -> None:
    def fail() -> None:
        raise NO_PROCESS

    failing = PeriodicThread("reconciler", fail, 60.0)
    failing.start()
    until(lambda: failing.failing is not None)
    Heartbeat(redis, "w", CPU, 1, {}).beat()
    (told,) = workers(redis)
    assert len(told.failing) == 1 and "reconciler" in told.failing[0] and "BlockingIOError" in told.failing[0]
    failing.stop()
    assert periodic_thread.failing() == []


@pytest.mark.parametrize(
    "note",
    ["no JSON", "[]", "3", "null", "{}", "[" * 100_000, '{"name": "old@here"}'],
    ids=["no JSON", "a list", "a number", "null", "empty", "deep", "of another version"],
)
def test_workers_skips_an_unreadable_heartbeat(note: str, redis: Redis) -> None:
    Heartbeat(redis, "good@here", CPU, 1, {}).beat()
    redis.sadd("workers", "old@here")
    redis.set("worker:old@here", note)
    assert [worker.name for worker in workers(redis)] == ["good@here"]
    records = JobStore(redis, ttl_s=60)
    records.create("a", EVALUATE)
    Reconciler(redis, records, ttl_s=60).run_once()


def test_a_self_test_that_cannot_be_started_is_started_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.fleet.quarantine.START_AGAIN_S", 0.05)
    monkeypatch.setattr("tasks.fleet.quarantine.EVERY_S", 0.01)
    redis.hset(FAULTS, "w", CONSECUTIVE_FAULTS)
    takes: list[bool] = []
    reasons: list[str | None] = []

    def test(stopping: Event) -> str | None:
        reasons.append(guard.reason)
        if len(reasons) == 1:
            raise NO_PROCESS
        return None

    guard = Quarantine(redis, "w", takes.append, test)
    guard.start()
    until(lambda: takes == [False, True])
    guard.stop()
    assert guard.reason is None and len(reasons) == 2
    assert reasons[1] is not None and "could not be started" in reasons[1]


def test_self_test_with_much_output_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "TIMEOUT_S", WAIT_S)
    much = "import sys; print('a warning ' * 100_000); print('the last word'); sys.exit(int(sys.argv[1]))"
    assert self_test.failure_of([sys.executable, "-c", much, "0"], Event()) is None
    told = self_test.failure_of([sys.executable, "-c", much, "1"], Event())
    assert told is not None and told.endswith("the last word") and len(told) <= self_test.MAX_CHARS


def test_job_notifier_outlives_a_message_that_is_no_text(redis: Redis) -> None:
    hub, others = JobNotifier(redis), listeners()
    try:
        with hub.watch("a") as change:
            ours = listeners() - others

            def heard() -> bool:
                redis.publish(CHANNEL, "a")
                return change.wait(0.1)

            until(heard)  # It listens.
            redis.publish(CHANNEL, b"\xff\xfe no text")
            change.clear()
            until(heard)
            assert listeners() - others == ours and len(ours) == 1
    finally:
        hub.close()


def listeners() -> set[int | None]:
    """The threads that listen for changes of jobs, by number."""
    return {thread.native_id for thread in threading.enumerate() if thread.name == LISTENER}


def test_a_card_sampler_that_prints_no_text_is_killed_and_started_again(tmp_path: Path) -> None:
    talks = """
import pathlib, sys, time
pathlib.Path(sys.argv[1], str(time.monotonic_ns())).touch()
sys.stdout.buffer.write(b"\\xff\\xff\\n")
sys.stdout.flush()
time.sleep(600)
"""
    sampler = CardSampler("no card", [sys.executable, "-c", talks, str(tmp_path)])
    try:
        until(lambda: sampler.reading() is None and len(list(tmp_path.iterdir())) > 1)
    finally:
        sampler.stop()
