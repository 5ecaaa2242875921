"""Keys of jobs that are gone, evicted by Redis or deleted by hand: the other jobs are judged, counted and forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from domain.access import Key
from domain.job import State
from tasks.fleet.quarantine import FAULTS
from tasks.jobs import job_store
from tasks.jobs.job_queue import COMMON
from tasks.jobs.job_scripts import transition
from tasks.jobs.job_store import MAX_ATTEMPTS, JobStore
from tasks.worker.reconciler import Reconciler
from tests.tasks.example_jobs import EVALUATE, report, seen, until

OWNER = Key("k", "owner", frozenset(), "", 0.0, 60, 3)


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=60)


def test_a_record_that_is_gone_stops_no_cleanup(records: JobStore, redis: Redis) -> None:
    for job_id in ("gone", "stays"):
        records.create(job_id, EVALUATE, key=OWNER)
        records.cancel(job_id)
    redis.delete("job:gone")
    assert records.cleanup(records.now() + 1) == 2
    assert records.get("stays") is None
    assert not [name for name in redis.keys("*") if redis.type(name) == b"zset" and redis.zscore(name, "gone")]


def test_open_jobs_whose_records_are_gone_are_neither_counted_nor_held_against_their_key(
    records: JobStore, redis: Redis
) -> None:
    for job_id in ("running", "queued", "stays"):
        records.create(job_id, EVALUATE, key=OWNER)
    assert records.claim("w") is not None
    redis.delete("job:running", "job:queued")
    assert records.cleanup(0) == 2
    counters = records.counters()
    assert (counters["jobs"], counters["by_state:queued"], counters["by_state:building"]) == (1, 1, 0)
    assert counters["average_age_seconds"] == pytest.approx(records.now() - seen(records, "stays").submitted_at, abs=1)
    assert records.create("a", EVALUATE, key=OWNER) and records.create("b", EVALUATE, key=OWNER)
    assert not records.create("c", EVALUATE, key=OWNER)
    claim = records.claim("w")
    assert claim is not None and claim.job_id == "stays"


def test_many_records_that_are_gone_under_many_keys_do_not_stop_redis(records: JobStore, redis: Redis) -> None:
    """It serves nothing else during a script: the indexes of a key are asked once, not once for each job."""
    for number in range(20):
        records.create(f"{number}", EVALUATE, key=replace(OWNER, key_id=f"{number}"))
        redis.delete(f"job:{number}")
    redis.config_resetstat()
    assert records.cleanup(0) == 20
    assert redis.info("commandstats")["cmdstat_srem"]["calls"] == 20
    assert not redis.keys("jobs:open:*") and not redis.keys("jobs:key:*")


@pytest.mark.parametrize("lost", [f"jobs:line:{COMMON}", "jobs:lines"])
def test_jobs_enter_a_queue_that_was_lost_again(records: JobStore, redis: Redis, lost: str) -> None:
    for job_id in ("a", "b"):
        records.create(job_id, EVALUATE)
    redis.delete(lost)
    Reconciler(redis, records, ttl_s=60).run_once()
    claims = [records.claim("w"), records.claim("w")]
    assert [claim.job_id for claim in claims if claim is not None] == ["a", "b"]


def test_a_lost_place_or_record_is_found_wherever_it_is_in_a_long_queue(records: JobStore, redis: Redis) -> None:
    """The first jobs may wait for ever, such as for a GPU that is away."""
    ids = [f"{number}" for number in range(10)]
    for job_id in ids:
        records.create(job_id, EVALUATE)
    redis.delete(f"jobs:line:{COMMON}")
    found: set[str] = set()

    def found_all() -> bool:
        found.update(records.queue.stranded(2))
        return found == set(ids)

    until(found_all)
    redis.delete("job:9")
    argument = {"finished_before": "0", "limit": 2}
    until(lambda: transition(redis, "cleanup_jobs")(argument) == 1)
    assert redis.zcard("jobs:state:queued") == 9


def test_a_job_that_paused_enters_a_queue_though_that_was_lost(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 60)
    records.create("a", EVALUATE)
    for attempt in (1, 2):
        assert records.claim("w") is not None
        records.requeue("a", attempt, "fault")
    redis.delete("jobs:paused")
    Reconciler(redis, records, ttl_s=60).run_once()
    claim = records.claim("w")
    assert claim is not None and claim.attempt == MAX_ATTEMPTS


def test_a_request_that_is_gone_is_no_evidence_against_the_worker(records: JobStore, redis: Redis) -> None:
    records.create("a", EVALUATE)
    redis.delete("job:a:request")
    assert records.claim("w") is None
    assert seen(records, "a").state is State.FAILED
    assert not redis.hexists(FAULTS, "w")


def test_a_result_that_is_gone_leaves_a_job_that_can_be_read(records: JobStore, redis: Redis) -> None:
    records.create("a", EVALUATE)
    assert records.claim("w") is not None and records.complete("a", 1, report().body("a"))
    redis.delete("job:a:result")
    view = seen(records, "a")
    assert (view.state, view.result) == (State.COMPLETED, None)
