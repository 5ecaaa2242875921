"""A worker whose device fails job after job: it is tested, takes no jobs while it fails, and takes them again."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import NoReturn

import httpx
import pytest
from redis import Redis

from domain.fault import InfrastructureFault, Unproven
from domain.job import Stage, State
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Status
from tasks.evaluation import self_test
from tasks.evaluation.celery_task import execute
from tasks.fleet.heartbeat import Heartbeat, workers
from tasks.fleet.quarantine import CONSECUTIVE_FAULTS, FAULTS, QUARANTINED, TEST_AGAIN_S, Quarantine
from tasks.jobs.job_queue import COMMON, Message, queue_of_worker
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import CPU
from tasks.worker import reconciler
from tasks.worker.reconciler import Reconciler
from tests.chaos.service import START_S, service
from tests.tasks.example_jobs import EVALUATE, give_to, report, seen, until

MESSAGE = Message("a.1", COMMON)


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=60)


def fail(records: JobStore, worker: str, job_id: str) -> None:
    records.create(job_id, EVALUATE)
    claim = records.claim(worker)
    assert claim is not None and claim.job_id == job_id
    assert records.requeue(job_id, claim.attempt, "the card is gone")
    records.cancel(job_id)


def judge(records: JobStore, worker: str, job_id: str, *stages: Stage, status: Status = Status.PASSED) -> None:
    records.create(job_id, EVALUATE)
    claim = records.claim(worker)
    assert claim is not None and claim.job_id == job_id
    for stage in stages:
        assert records.enter_stage(job_id, claim.attempt, stage)
    assert records.complete(job_id, claim.attempt, report(status).body(job_id))


def test_faults_in_a_row_are_counted_and_a_verdict_ends_the_row(records: JobStore, redis: Redis) -> None:
    fail(records, "w", "a")
    fail(records, "w", "b")
    fail(records, "other", "c")
    assert redis.hgetall(FAULTS) == {b"w": b"2", b"other": b"1"}
    judge(records, "w", "broken", Stage.BUILD, status=Status.COMPILE_ERROR)
    assert redis.hgetall(FAULTS) == {b"w": b"2", b"other": b"1"}, "nothing was run on its device"
    judge(records, "w", "good", Stage.BUILD, Stage.LOAD, Stage.VALIDATE)
    assert redis.hgetall(FAULTS) == {b"other": b"1"}


def test_a_fault_that_only_a_submission_tells_of_is_retried_and_counts_against_no_worker(
    records: JobStore, redis: Redis
) -> None:
    def stopped(*_: object) -> NoReturn:
        raise Unproven("a compiler was stopped, as the kernel's process says")

    records.create("a", EVALUATE)
    for attempt in (1, 2, 3):
        assert execute(records, records, MESSAGE, "w", stopped) == "failed"
        assert len(seen(records, "a").failed_attempts) == attempt
    assert seen(records, "a").state is State.FAILED
    assert redis.hgetall(FAULTS) == {}

    def broken(*_: object) -> NoReturn:
        raise InfrastructureFault("the disk is full")

    records.create("b", EVALUATE)
    assert execute(records, records, MESSAGE, "w", broken) == "failed"
    assert redis.hgetall(FAULTS) == {b"w": b"1"}


def test_what_ran_on_another_worker_says_nothing_of_this_one(records: JobStore, redis: Redis) -> None:
    fail(records, "w", "b")
    records.create("a", EVALUATE)
    assert records.claim("other") is not None
    assert records.enter_stage("a", 1, Stage.VALIDATE)
    assert records.requeue("a", 1, "its worker died")
    assert records.claim("w") is not None
    assert records.enter_stage("a", 2, Stage.BUILD)
    assert records.complete("a", 2, report(Status.COMPILE_ERROR).body("a"))
    assert redis.hgetall(FAULTS) == {b"w": b"1", b"other": b"1"}


def test_a_device_that_fails_its_test_takes_no_jobs_until_it_passes(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes: list[bool] = []
    answers: list[str | None] = ["cudaErrorECCUncorrectable", None]
    now = [0.0]
    guard = Quarantine(redis, "w", takes.append, lambda stopping: answers.pop(0), lambda: now[0])
    for number in range(CONSECUTIVE_FAULTS - 1):
        fail(records, "w", f"{number}")
    guard.run_once()
    assert (takes, guard.reason) == ([], None)
    fail(records, "w", "last")
    guard.run_once()
    assert takes == [False]
    assert guard.reason is not None and "cudaErrorECCUncorrectable" in guard.reason
    guard.run_once()
    assert len(answers) == 1, "not tested again at once"
    Heartbeat(redis, "w", CPU, 1, {}, lambda: guard.reason).beat()
    Heartbeat(redis, "v", CPU, 1, {}).beat()
    assert [(worker.name, worker.quarantined) for worker in workers(redis)] == [("v", None), ("w", guard.reason)]
    # Jobs that another worker has failed do not go to it, and what stands in its own line goes elsewhere.
    records.create("moved", EVALUATE)
    assert records.claim("v") is not None
    assert records.requeue("moved", 1, "the card is gone") == COMMON
    now[0] += TEST_AGAIN_S
    guard.run_once()
    assert (takes, guard.reason, redis.exists(FAULTS, QUARANTINED)) == ([False, True], None, 1)
    own = queue_of_worker("w")
    assert records.queue.move("moved") == own
    monkeypatch.setattr(reconciler, "SURE_S", 0.0)
    looker = Reconciler(redis, records, ttl_s=60)
    looker.run_once()
    assert [line.name for line in records.queue.all()] == [own]
    redis.hset(QUARANTINED, "w", "broken again")
    Heartbeat(redis, "w", CPU, 1, {}, lambda: "broken again").beat()
    looker.run_once()
    assert [line.name for line in records.queue.all()] == [COMMON]


def test_a_stop_during_the_test_leaves_nothing_behind(records: JobStore, redis: Redis) -> None:
    for number in range(CONSECUTIVE_FAULTS):
        fail(records, "w", f"{number}")
    begun = Event()

    def slow(stopping: Event) -> None:
        begun.set()
        assert stopping.wait(START_S)

    guard = Quarantine(redis, "w", lambda on: None, slow)
    guard.start()
    assert begun.wait(START_S)
    guard.stop()
    assert redis.exists(FAULTS, QUARANTINED) == 0


@pytest.mark.slow  # Starts an interpreter with torch; the worker below does it too.
def test_the_self_test_passes_here_and_says_why_it_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "state"))
    assert self_test.failure(Event()) is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "file" / "state"))
    told = self_test.failure(Event())
    assert told is not None and "NotADirectoryError" in told


@pytest.mark.slow  # The parts are tested above; here two real workers and their self-tests.
def test_a_worker_that_fails_every_job_is_quarantined_and_comes_back(tmp_path: Path) -> None:
    """Its fault is one that a machine without a card can have: there is no folder for its jobs."""
    state = tmp_path / "state of a"
    request = Request(kernel=Kernel("def kernel_fn(x):\n    return x + 1\n", KernelType.TORCH), num_trials=1)
    with service(tmp_path, b=1) as (made, ledger):
        made.start_worker("a", 1, STATE_DIR=str(state))
        until(lambda: made.lives("a", "b"), START_S)
        (state / "work").rename(state / "moved")  # It would not have started without its folders.
        (state / "work").touch()
        jobs = [ledger.enter(f"job-{number}") for number in range(CONSECUTIVE_FAULTS)]
        for job_id in jobs:
            give_to(made.redis, made.records, "a@test", job_id, request)
        until(lambda: all(made.view(job_id).state.terminal for job_id in jobs), START_S)
        assert {made.view(job_id).state for job_id in jobs} == {State.COMPLETED}
        assert {made.view(job_id).worker for job_id in jobs} == {"b@test"}

        def quarantined() -> list[str]:
            found: list[str] = httpx.get(f"{made.url}/health", timeout=10).json()["quarantined"]
            return found

        until(lambda: quarantined() == ["a@test"], START_S)
        assert httpx.get(f"{made.url}/stats", timeout=10).json()["workers_quarantined"] == 1
        # It takes nothing, also not from its own queue: the reconciler has it taken by the other.
        job_id = ledger.enter("meant for a")
        give_to(made.redis, made.records, "a@test", job_id, request)
        until(lambda: made.view(job_id).state.terminal, START_S)
        assert (made.view(job_id).worker, made.view(job_id).attempt) == ("b@test", 1)
        (state / "work").unlink()
        until(lambda: quarantined() == [], START_S)
        last = ledger.enter("last")
        give_to(made.redis, made.records, "a@test", last, request)
        until(lambda: made.view(last).state.terminal, START_S)
        assert (made.view(last).worker, made.view(last).attempt) == ("a@test", 1)
        made.kill("b")
        common = ledger.enter(made.submit(request))
        until(lambda: made.view(common).state.terminal, START_S)
        assert made.view(common).worker == "a@test"
        made.stop()
        ends = {seen(made.records, each).state for each in ledger.ends}
        assert ends == {State.COMPLETED}
