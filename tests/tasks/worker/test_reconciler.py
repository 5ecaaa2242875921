"""The reconciler: a lost message is published again, a dead owner's job queued again, and nothing else is touched."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from kombu import Producer
from redis import Redis
from redis.exceptions import OutOfMemoryError

from domain.job import State
from tasks.app import app
from tasks.fleet import heartbeat
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs import job_store
from tasks.jobs.admission import NewJob
from tasks.jobs.job_queue import COMMON, queue_of_gpu, queue_of_worker
from tasks.jobs.job_store import MAX_ATTEMPTS, JobStore
from tasks.jobs.submit import message_id, publish_again, submit, submit_many
from tasks.node.device_info import CPU
from tasks.worker import reconciler
from tasks.worker.reconciler import LOCK, Reconciler
from tests.tasks.broker import published_to
from tests.tasks.example_jobs import EVALUATE, report, seen, until
from tests.tasks.node.refusing_redis import full_memory


@pytest.fixture(autouse=True)
def in_fast_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "PULSE_TTL_S", 1)
    monkeypatch.setattr(reconciler, "SURE_S", 0.2)


@pytest.fixture
def job_records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=60)


@pytest.fixture
def looker(redis: Redis, job_records: JobStore) -> Reconciler:
    return Reconciler(redis, job_records, ttl_s=60)


def messages(redis: Redis, queue: str = "evaluate") -> list[str]:
    """The ids of the messages in that queue, the next one first."""
    return [json.loads(raw)["headers"]["id"] for raw in reversed(redis.lrange(queue, 0, -1))]


def look_until(looker: Reconciler, true: Callable[[], bool]) -> None:
    def looked() -> bool:
        looker.run_once()
        return true()

    until(looked)


def look_for_a_while(looker: Reconciler) -> None:
    until_over = time.monotonic() + 3 * reconciler.SURE_S
    while time.monotonic() < until_over:
        looker.run_once()


def test_submitting_records_and_publishes(job_records: JobStore, redis: Redis) -> None:
    job_id = submit(job_records, EVALUATE).job_id
    batch = ["x", "y", "z"]
    submit_many(job_records, [NewJob(each, EVALUATE) for each in batch], batch_id="b")
    submit_many(job_records, [NewJob(each, EVALUATE) for each in batch], batch_id="b")
    assert submit(job_records, EVALUATE, job_id="x").job_id == "x", "recorded already, and not published again"
    assert messages(redis) == [message_id(each, 1) for each in [job_id, *batch]]
    raw = redis.lrange("evaluate", -1, -1)[0]
    assert isinstance(raw, bytes)
    assert EVALUATE.kernel.source_code.encode() not in raw
    headers = json.loads(raw)["headers"]
    assert (headers["task"], headers["argsrepr"], headers["kwargsrepr"]) == ("evaluate", "()", "{}")
    assert [view.job_id for view in job_records.list(batch_id="b")] == list(reversed(batch))


def test_a_job_is_accepted_though_kombu_goes_on_with_a_channel_that_it_has_closed(
    job_records: JobStore, looker: Reconciler, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does where Redis goes away between declaring a queue and publishing: `Producer._publish` has it by then."""
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "maybe_declare", lambda self, *args, **kwargs: self.connection.collect())
        assert submit(job_records, EVALUATE, job_id="x").job_id == "x"
    assert messages(redis) == [] and seen(job_records, "x").state is State.QUEUED
    look_until(looker, lambda: len(messages(redis)) == 1)
    assert submit(job_records, EVALUATE, job_id="y").job_id == "y"
    assert messages(redis)[1:] == [message_id("y", 1)]


def test_threads_that_publish_share_one_lookup_of_the_backend() -> None:
    """It costs 5 ms in each thread, and a wave of submissions meets many new ones."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: app.backend).result() is app.backend


def test_a_lost_message_is_replaced(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    job_records.create("lost", EVALUATE)
    look_until(looker, lambda: len(messages(redis)) == 1)
    look_for_a_while(looker)
    assert len(messages(redis)) == 1


def test_as_many_are_replaced_as_were_lost(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    for job_id in "abc":
        job_records.create(job_id, EVALUATE)
    waiting = [submit(job_records, EVALUATE).job_id for _ in range(3)]
    look_until(looker, lambda: len(messages(redis)) > 3)
    look_for_a_while(looker)
    assert len(messages(redis)) == 6
    assert messages(redis)[:3] == [message_id(each, 1) for each in waiting]


def test_a_message_that_was_just_received_is_not_lost(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    """Whoever received it claims a job in a moment: the line is short of one at every look, of another each time."""
    for number in range(40):
        submit(job_records, EVALUATE, job_id=f"{number}")
        redis.rpop(COMMON)
        looker.run_once()
        claim = job_records.claim("w")
        assert claim is not None
        looker.run_once()
        assert job_records.fail(f"{number}", claim.attempt, "over")  # Or its owner, who sends no pulse, would be lost.
    assert messages(redis) == []


def test_messages_without_jobs_mislead_nobody(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    cancelled = submit(job_records, EVALUATE).job_id
    job_records.cancel(cancelled)
    requeued = submit(job_records, EVALUATE).job_id
    waiting = submit(job_records, EVALUATE).job_id
    assert job_records.claim("w") is not None
    assert job_records.requeue(requeued, 1, "again") == COMMON
    publish_again(COMMON, requeued, 2)
    before = messages(redis)
    assert before == [
        *(message_id(cancelled, 1), message_id(requeued, 1)),
        *(message_id(waiting, 1), message_id(requeued, 2)),
    ]
    look_for_a_while(looker)
    assert messages(redis) == before


def test_a_job_whose_owner_is_gone_is_queued_again(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    job_records.create("a", EVALUATE)
    assert job_records.claim("w") is not None
    look_until(looker, lambda: seen(job_records, "a").state is State.QUEUED)
    assert messages(redis) == [message_id("a", 2)]
    assert job_records.claim("w") is not None
    assert not job_records.complete("a", 1, report().body("a"))
    assert job_records.complete("a", 2, report().body("a"))


def test_a_record_that_cannot_be_repaired_stops_no_other_repair(
    looker: Reconciler, job_records: JobStore, redis: Redis
) -> None:
    for job_id in ("damaged", "sound"):
        job_records.create(job_id, EVALUATE)
        assert job_records.claim("w") is not None
    redis.hset("job:damaged", "since", "never")
    look_until(looker, lambda: seen(job_records, "sound").state is State.QUEUED)


def test_a_queued_record_that_cannot_be_repaired_stops_no_other_repair(
    looker: Reconciler, job_records: JobStore, redis: Redis
) -> None:
    for job_id in ("running", "damaged", "sound"):
        job_records.create(job_id, EVALUATE)
    assert job_records.claim("w") is not None
    redis.delete(f"jobs:line:{COMMON}")
    redis.hset("job:damaged", "failed_attempts", "{")
    looker.run_once()
    claim = job_records.claim("w")
    assert claim is not None and claim.job_id == "sound"
    look_until(looker, lambda: seen(job_records, "running").state is State.QUEUED)


def test_a_record_that_cannot_be_expired_stops_no_other_repair(
    looker: Reconciler, job_records: JobStore, redis: Redis
) -> None:
    job_records.create("damaged", replace(EVALUATE, queue_timeout=1))
    job_records.create("sound", EVALUATE)
    redis.hset("job:damaged", "since", "never")
    redis.zadd("jobs:deadlines", {"damaged": 1})
    redis.delete(f"jobs:line:{COMMON}")
    look_until(looker, lambda: "sound" in job_records.queue.jobs(COMMON, 9))


def test_a_job_whose_owner_lives_is_left_alone(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    job_records.create("a", EVALUATE)
    assert job_records.claim("w") is not None
    until_over = time.monotonic() + 2 * job_store.PULSE_TTL_S
    while time.monotonic() < until_over:
        assert job_records.pulse("a", 1) == "go on"
        looker.run_once()
    assert seen(job_records, "a").attempt == 1
    assert messages(redis) == []


def test_nobody_is_suspected_while_redis_takes_no_writes(
    looker: Reconciler, job_records: JobStore, redis: Redis
) -> None:
    """Owners cannot report either. A pass that fails drops all suspicions."""
    job_records.create("a", EVALUATE)
    assert job_records.claim("w") is not None
    with full_memory(redis):
        until(lambda: job_records.abandoned() == [("a", 1)])
        for _ in range(2):
            with pytest.raises(OutOfMemoryError):
                looker.run_once()
    assert job_records.pulse("a", 1) == "go on"
    looker.run_once()
    assert seen(job_records, "a").attempt == 1


def test_old_jobs_free_a_memory_that_is_full(job_records: JobStore, redis: Redis) -> None:
    job_records.create("a", EVALUATE)
    claim = job_records.claim("w")
    assert claim is not None and job_records.complete("a", claim.attempt, report().body("a"))
    with full_memory(redis):
        with pytest.raises(OutOfMemoryError):
            Reconciler(redis, job_records, ttl_s=0).run_once()
        assert job_records.get("a") is None


def test_what_died_before_the_clock_was_set_back_is_noticed_in_time(
    looker: Reconciler, job_records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis keeps the time at which a key expires: by a clock that is set back an hour, that is an hour later."""
    monkeypatch.setattr(heartbeat, "TTL_S", 1)
    monkeypatch.setattr(reconciler, "LOCK_TTL_S", 1)
    Heartbeat(redis, "w", CPU, 1, {}).beat()
    job_records.create("a", EVALUATE)
    assert job_records.claim("w") is not None
    submit(job_records, EVALUATE, job_id="b", worker="w")
    redis.set(LOCK, "of a dead reconciler")
    for key in ("job:a:owner", "worker:w", LOCK):
        redis.expire(key, 3600)
    look_until(looker, lambda: seen(job_records, "a").state is State.QUEUED)
    look_until(looker, lambda: not job_records.queue.jobs(queue_of_worker("w"), 9))
    assert heartbeat.workers(redis) == []


def test_owners_that_keep_dying_end_the_job(looker: Reconciler, job_records: JobStore) -> None:
    job_records.create("a", EVALUATE)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert job_records.claim(f"w{attempt}") is not None
        look_until(looker, lambda: seen(job_records, "a").state in (State.QUEUED, State.FAILED))
    view = seen(job_records, "a")
    assert view.state is State.FAILED
    assert view.error is not None and all(f"on w{attempt}" in view.error for attempt in range(1, MAX_ATTEMPTS + 1))


def test_a_job_is_tried_again_by_another_worker(looker: Reconciler, job_records: JobStore, redis: Redis) -> None:
    for name in ("a", "b"):
        Heartbeat(redis, name, CPU, 1, {}).beat()
    job_records.create("job", EVALUATE)
    assert job_records.claim("a") is not None
    own = queue_of_worker("b")
    look_until(looker, lambda: messages(redis, own) == [message_id("job", 2)])
    look_for_a_while(looker)
    assert messages(redis, own) == [message_id("job", 2)], "one that waits for its worker is not lost"
    assert messages(redis) == []
    assert job_records.claim("a") is None
    # That worker dies: any may take the job.
    redis.delete("worker:b")
    look_until(looker, lambda: len(messages(redis)) == 1)
    assert job_records.claim("a") is not None


def test_a_message_for_one_gpu_is_replaced_in_its_own_queue(
    looker: Reconciler, job_records: JobStore, redis: Redis
) -> None:
    Heartbeat(redis, "a", CPU, 1, {}).beat()
    wants_cpu = replace(EVALUATE, gpu="cpu")
    assert job_records.create("job", wants_cpu)
    look_until(looker, lambda: len(messages(redis, queue_of_gpu("cpu"))) == 1)
    assert messages(redis) == []


def test_one_reconciler_works_at_a_time(redis: Redis, job_records: JobStore) -> None:
    first, second = (Reconciler(redis, job_records, ttl_s=60) for _ in range(2))
    first.run_once()
    job_records.create("lost", EVALUATE)
    look_for_a_while(second)
    assert messages(redis) == []
    first.start()
    first.stop()
    assert not redis.exists(LOCK)
    look_until(second, lambda: len(messages(redis)) == 1)


def test_old_jobs_are_forgotten(redis: Redis, job_records: JobStore) -> None:
    job_records.create("a", EVALUATE)
    job_records.cancel("a")
    Reconciler(redis, job_records, ttl_s=0).run_once()
    assert job_records.list() == []


def test_a_broker_that_is_away_leaves_the_job_accepted(job_records: JobStore, redis: Redis) -> None:
    with published_to("redis://127.0.0.1:1/0"):
        job_id = submit(job_records, EVALUATE).job_id
    assert seen(job_records, job_id).state is State.QUEUED
