"""Job records: every move is a compare-and-set, every job ends once, and the counters add up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from redis import Redis

from domain.access import Key
from domain.job import Stage, State
from domain.result import Status
from tasks.fleet.heartbeat import MODELS, NAMES
from tasks.jobs import job_queue, job_store
from tasks.jobs.admission import Accepted, Limits, NewJob, Refusal
from tasks.jobs.job_queue import COMMON, Message, queue_of_gpu, queue_of_worker
from tasks.jobs.job_store import MAX_ATTEMPTS, REASON_CHARS, JobStore
from tests.tasks.example_jobs import COMPARE, EVALUATE, report, seen, until


def body(job_id: str, status: Status = Status.PASSED) -> dict[str, Any]:
    return report(status).body(job_id)


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=60)


def run_to(records: JobStore, job_id: str, *stages: Stage) -> int:
    """Claim the job and take it through those stages."""
    claim = records.claim("w")
    assert claim is not None and claim.job_id == job_id
    for stage in stages:
        assert records.enter_stage(job_id, claim.attempt, stage)
    return claim.attempt


def together(*calls: Callable[[], Any]) -> list[Any]:
    """The answers of calls that start at the same moment on threads of their own."""
    start, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place: int) -> None:
        start.wait()
        answers[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_who_records_a_job_is_told_it_as_it_is(records: JobStore) -> None:
    records.create("before", EVALUATE)
    own = {"batch_id": "b", "key": Key("k", "k", frozenset(), "", 0.0, 60, 10)}
    new = records.create("a", replace(COMPARE, queue_timeout=60, build_timeout=30, priority=6), **own)
    assert new and new.new and new.view == seen(records, "a") and new.view.queue_position == 0
    assert records.create("before", EVALUATE).view.queue_position == 1  # type: ignore[union-attr]
    run_to(records, "a", Stage.LOAD)
    known = records.create("a", replace(COMPARE, queue_timeout=60, build_timeout=30, priority=6), **own)
    assert known and not known.new and known.view == seen(records, "a") and known.view.state is State.RUNNING
    assert records.create("a", EVALUATE) is Refusal.OTHER_REQUEST


def test_a_new_job_is_queued_with_its_request(records: JobStore) -> None:
    before = time.time()
    records.create("a", COMPARE)
    view = seen(records, "a")
    assert (view.state, view.stage, view.attempt, view.queue_position) == (State.QUEUED, Stage.QUEUED, 0, 0)
    assert (view.operation, view.kernel_type, view.timeout) == ("compare", "cuda", COMPARE.timeout)
    assert (view.result, view.error, view.worker, view.batch_id) == (None, None, None, None)
    assert [entry.stage for entry in view.timeline] == ["queued"]
    assert before - 0.001 <= view.submitted_at <= time.time() + 0.001
    claim = records.claim("w")
    assert claim is not None
    assert (claim.job_id, claim.request) == ("a", COMPARE)


def test_an_unknown_job_is_none(records: JobStore) -> None:
    assert records.get("nobody") is None
    assert records.cancel("nobody") is None
    assert records.claim("w") is None
    assert not records.complete("nobody", 1, body("nobody"))
    assert records.pulse("nobody", 1) == "lost"


def test_recording_twice_changes_nothing(records: JobStore) -> None:
    records.create("a", EVALUATE)
    run_to(records, "a")
    records.create("a", COMPARE)
    assert seen(records, "a").operation == "evaluate"
    assert records.counters()["submitted"] == 1


def test_the_whole_life(records: JobStore, redis: Redis) -> None:
    records.create("a", EVALUATE)
    attempt = run_to(records, "a", Stage.BUILD, Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.VALIDATE, Stage.TIME)
    assert seen(records, "a").state is State.RUNNING
    assert records.complete("a", attempt, body("a"))
    view = seen(records, "a")
    assert (view.state, view.stage, view.worker) == (State.COMPLETED, Stage.DONE, "w")
    assert view.result == body("a")
    stages = ["queued", "build", "wait_for_device", "load", "validate", "time", "done"]
    assert [entry.stage for entry in view.timeline] == stages
    assert [entry.at for entry in view.timeline] == sorted(entry.at for entry in view.timeline)
    assert {entry.attempt for entry in view.timeline} == {1}
    assert redis.exists("job:a:request", "job:a:owner") == 0


def test_a_terminal_state_stays(records: JobStore) -> None:
    records.create("a", EVALUATE)
    attempt = run_to(records, "a")
    assert records.complete("a", attempt, body("a"))
    assert not records.complete("a", attempt, body("a", Status.CRASHED))
    assert not records.fail("a", attempt, "late")
    assert not records.requeue("a", attempt, "late")
    assert not records.finish_cancelled("a", attempt)
    assert not records.enter_stage("a", attempt, Stage.TIME)
    assert records.pulse("a", attempt) == "lost"
    assert records.claim("w") is None
    view = records.cancel("a")
    assert view is not None and view.state is State.COMPLETED and view.result == body("a")


def test_one_of_many_claims_wins(records: JobStore) -> None:
    for round_ in range(20):
        job_id = f"job-{round_}"
        records.create(job_id, EVALUATE)
        claims = together(*[partial(records.claim, "w")] * 8)
        assert len([claim for claim in claims if claim is not None]) == 1


def test_one_of_many_ends_wins(records: JobStore) -> None:
    for round_ in range(20):
        job_id = f"job-{round_}"
        records.create(job_id, EVALUATE)
        attempt = run_to(records, job_id)
        ends = together(
            partial(records.complete, job_id, attempt, body(job_id)),
            partial(records.fail, job_id, attempt, "broken"),
            partial(records.finish_cancelled, job_id, attempt),
            partial(records.requeue, job_id, attempt, "again"),
        )
        won = [place for place, end in enumerate(ends) if end]
        assert len(won) == 1
        state = [State.COMPLETED, State.FAILED, State.CANCELLED, State.QUEUED][won[0]]
        assert seen(records, job_id).state is state
        records.cancel(job_id)


def test_cancel_against_claim_leaves_one_story(records: JobStore) -> None:
    for round_ in range(20):
        job_id = f"job-{round_}"
        records.create(job_id, EVALUATE)
        claim, view = together(partial(records.claim, "w"), partial(records.cancel, job_id))
        if claim is None:
            assert view.state is State.CANCELLED
        else:
            assert records.pulse(job_id, claim.attempt) == "cancel"
            assert records.finish_cancelled(job_id, claim.attempt)
        assert seen(records, job_id).state is State.CANCELLED
    assert records.counters()["cancelled"] == 20


def test_a_superseded_attempt_moves_nothing(records: JobStore) -> None:
    records.create("a", EVALUATE)
    first = run_to(records, "a", Stage.WAIT_FOR_DEVICE)
    assert records.requeue("a", first, "lost sight of it")
    assert not records.enter_stage("a", first, Stage.LOAD)
    second = run_to(records, "a")
    assert second == first + 1
    assert not records.enter_stage("a", first, Stage.LOAD)
    assert not records.complete("a", first, body("a"))
    assert not records.fail("a", first, "late")
    assert records.pulse("a", first) == "lost"
    assert records.pulse("a", second) == "go on"
    assert records.complete("a", second, body("a"))
    reasons = [entry.reason for entry in seen(records, "a").timeline if entry.reason]
    assert reasons == ["attempt 1 on w: lost sight of it"]


def test_a_message_begins_one_job_however_often_it_comes(records: JobStore, redis: Redis) -> None:
    records.create_many([NewJob("a", EVALUATE), NewJob("b", EVALUATE)], batch_id=None)
    first, second = Message("a.1"), Message("b.1")
    claim = records.claim("w", message=first)
    assert claim is not None and claim.job_id == "a"
    assert records.claim("w", message=first) is None, "delivered again while its job runs"
    assert records.queue.running_under(first.id) == ("a", 1)
    assert records.complete("a", 1, body("a"))
    assert records.queue.running_under(first.id) is None
    claim = records.claim("w", message=second)
    assert claim is not None and claim.job_id == "b"
    assert records.requeue("b", 1, "again") == COMMON
    assert records.queue.running_under(second.id) is None
    assert redis.exists("jobs:messages") == 0


def test_faults_of_ours_are_bounded_and_told(records: JobStore) -> None:
    records.create("a", EVALUATE)
    for attempt in range(1, MAX_ATTEMPTS):
        assert records.requeue("a", run_to(records, "a"), f'fault "{attempt}"')
    assert not records.requeue("a", run_to(records, "a"), "the last fault")
    view = seen(records, "a")
    assert view.state is State.FAILED
    assert view.error is not None
    assert view.error.splitlines() == [
        'attempt 1 on w: fault "1"',
        'attempt 2 on w: fault "2"',
        "attempt 3 on w: the last fault",
    ]
    counters = records.counters()
    assert (counters["requeued"], counters["failed"]) == (MAX_ATTEMPTS - 1, 1)


def test_a_fault_after_a_cancellation_cancels(records: JobStore) -> None:
    records.create("a", EVALUATE)
    attempt = run_to(records, "a")
    records.cancel("a")
    assert seen(records, "a").cancel_requested
    assert not records.requeue("a", attempt, "worker died")
    assert seen(records, "a").state is State.CANCELLED


def test_a_request_that_cannot_be_read_fails_the_job(records: JobStore, redis: Redis) -> None:
    records.create("a", EVALUATE)
    redis.set("job:a:request", "{}")
    assert records.claim("w") is None
    view = seen(records, "a")
    assert view.state is State.FAILED
    assert view.error is not None and "submit the job again" in view.error


def test_a_body_that_is_not_json_is_refused(records: JobStore) -> None:
    records.create("a", EVALUATE)
    attempt = run_to(records, "a")
    with pytest.raises(ValueError):
        records.complete("a", attempt, {**body("a"), "speed": float("nan")})
    assert seen(records, "a").state is State.BUILDING


def test_queue_positions_follow_the_queue(records: JobStore) -> None:
    records.create_many([NewJob(name, EVALUATE) for name in "abc"], batch_id=None)
    assert [seen(records, name).queue_position for name in "abc"] == [0, 1, 2]
    attempt = run_to(records, "a")
    assert [seen(records, name).queue_position for name in "abc"] == [None, 0, 1]
    records.requeue("a", attempt, "again")
    assert [seen(records, name).queue_position for name in "abc"] == [0, 1, 2], "it keeps its place"
    records.cancel("b")
    assert [seen(records, name).queue_position for name in "abc"] == [0, None, 1]
    assert [view.queue_position for view in records.list()] == [1, None, 0]
    assert records.queue_length() == 2


def test_lists_are_newest_first_and_paged(records: JobStore) -> None:
    names = [f"job-{number}" for number in range(10)]
    records.create_many([NewJob(name, EVALUATE) for name in names], batch_id="b")
    records.create("other", COMPARE)
    assert [view.job_id for view in records.list()] == ["other", *reversed(names)]
    first = records.list(batch_id="b", limit=4)
    second = records.list(batch_id="b", limit=100, before=first[-1].submitted_at)
    assert [view.job_id for view in first + second] == list(reversed(names))
    assert {view.batch_id for view in first} == {"b"}
    run_to(records, "job-0")
    assert [view.job_id for view in records.list(state=State.BUILDING)] == ["job-0"]
    assert [view.job_id for view in records.list(state=State.BUILDING, batch_id="b")] == ["job-0"]
    assert len(records.list(state=State.QUEUED)) == 10


def test_a_summary_of_a_version_with_other_fields_leaves_the_lists_readable(records: JobStore, redis: Redis) -> None:
    records.create("a", EVALUATE)
    records.complete("a", run_to(records, "a"), body("a"))
    redis.hset("job:a", "summary", '{"verdict": "passed", "time_ms": 1.5}')
    (view,) = records.list()
    assert view.summary is not None and (view.summary.verdict, view.summary.latency_ms) == ("passed", None)


def test_a_batch_is_forgotten_with_its_last_job(records: JobStore, redis: Redis) -> None:
    for _ in range(2):
        records.create_many([NewJob("a", EVALUATE), NewJob("b", EVALUATE)], batch_id="x", bodies="of both")
    records.complete("a", run_to(records, "a"), body("a"))
    assert records.cleanup(records.now() + 1) == 1
    assert records.create_many([NewJob("c", EVALUATE)], batch_id="x", bodies="others") == [Refusal.OTHER_REQUEST]
    records.cancel("b")
    assert records.cleanup(records.now() + 1) == 1
    assert redis.keys("batch:*") == []


def test_cleanup_forgets_only_what_finished_before(records: JobStore, redis: Redis) -> None:
    records.create_many([NewJob(name, EVALUATE) for name in "abc"], batch_id="x")
    records.complete("a", run_to(records, "a"), body("a"))
    between = records.now()
    records.complete("b", run_to(records, "b"), body("b"))
    assert records.cleanup(between) == 1
    assert records.get("a") is None
    assert [view.job_id for view in records.list()] == ["c", "b"]
    assert records.cleanup(records.now() + 1) == 1
    assert [view.job_id for view in records.list(batch_id="x")] == ["c"]
    counters = records.counters()
    assert (counters["jobs"], counters["completed"], counters["by_state:completed"]) == (1, 2, 0)
    assert redis.keys("job:a*") == redis.keys("job:b*") == []


def test_the_counters_add_up(records: JobStore) -> None:
    records.create_many([NewJob(name, EVALUATE) for name in "abcd"], batch_id=None)
    records.create("e", COMPARE)
    attempt = run_to(records, "a", Stage.WAIT_FOR_DEVICE, Stage.LOAD)
    assert records.enter_stage("a", attempt, Stage.TIME, ago=0.0)
    records.complete("a", attempt, body("a"))
    records.complete("b", run_to(records, "b"), body("b", Status.COMPILE_ERROR))
    records.complete("c", run_to(records, "c", Stage.LOAD), body("c", Status.WRONG_RESULT))
    records.fail("d", run_to(records, "d"), "broken")
    records.cancel("e")
    counters = records.counters()
    expected = {
        **{"submitted": 5, "completed": 3, "failed": 1, "cancelled": 1, "requeued": 0, "jobs": 5},
        **{"by_kernel_type:torch": 4, "by_kernel_type:cuda": 1, "by_operation:evaluate": 4, "by_operation:compare": 1},
        **{"by_verdict:passed": 1, "by_verdict:compile_error": 1, "by_verdict:wrong_result": 1},
        **{"compile_ok": 2, "compile_failed": 1, "correctness_ok": 1, "correctness_failed": 1, "profiling_failed": 2},
        **{"by_state:queued": 0, "by_state:completed": 3, "by_state:failed": 1, "by_state:cancelled": 1},
        **{"finished_last_300_s": 5, "build_seconds:count": 3, "run_seconds:count": 2, "device_wait_seconds:count": 1},
        "end_to_end_seconds:count": 3,
        **{"ended:torch:evaluate:completed:passed": 1, "ended:torch:evaluate:completed:compile_error": 1},
        **{"ended:torch:evaluate:failed:infrastructure_error": 1, "ended:cuda:compare:cancelled:requested": 1},
    }
    assert {name: counters[name] for name in expected} == expected
    for name in ("build_seconds", "end_to_end_seconds"):
        low, total, high = (counters[f"{name}:{part}"] for part in ("min", "sum", "max"))
        assert 0 <= low <= total / 3 <= high <= total < 60
        assert sum(value for field, value in counters.items() if field.startswith(f"{name}:le:")) == 3
    assert 0 <= counters["average_age_seconds"] < 60
    assert counters["run_seconds_by_worker:w"] > 0


def test_the_device_is_counted_for_whoever_held_it(records: JobStore) -> None:
    records.create("a", EVALUATE)
    attempt = run_to(records, "a", Stage.LOAD)
    assert records.requeue("a", attempt, "its worker died")
    held = records.counters()["run_seconds_by_worker:w"]
    claim = records.claim("other")
    assert claim is not None
    records.enter_stage("a", claim.attempt, Stage.LOAD)
    records.enter_stage("a", claim.attempt, Stage.TIME)
    assert records.counters()["run_seconds_by_worker:other"] > 0, "counted before the job has ended"
    records.finish_cancelled("a", claim.attempt)
    assert records.counters()["run_seconds_by_worker:w"] == held > 0


def test_looking_into_a_kernel_is_counted_as_what_it_is(records: JobStore, redis: Redis) -> None:
    owner = Key("k", "k", frozenset(), "", 0.0, 60, 1000)
    records.create("a", EVALUATE, key=owner)
    attempt = run_to(records, "a", Stage.LOAD, Stage.TIME, Stage.INSPECT)
    redis.hset("job:a", "since", records.now() - 30)
    records.complete("a", attempt, body("a"))
    counters = records.counters()
    for counted in (
        *(counters["run_seconds_by_worker:w"], counters["run_seconds:sum"]),
        float(redis.hget("jobs:expected", EVALUATE.kind) or 0),
        *map(float, redis.hvals("jobs:shares")),
    ):
        assert 30 <= counted < 40
    # Where there was nothing to look into the device was not held.
    records.create("b", EVALUATE)
    records.complete("b", run_to(records, "b", Stage.INSPECT), body("b", Status.COMPILE_ERROR))
    assert records.counters()["run_seconds:count"] == 1


def test_no_time_is_negative_after_the_clock_was_set_back(records: JobStore, redis: Redis) -> None:
    records.create("a", EVALUATE)
    for field in ("submitted_at", "since"):
        redis.hincrbyfloat("job:a", field, 3600)
    attempt = run_to(records, "a", Stage.WAIT_FOR_DEVICE, Stage.LOAD, Stage.TIME)
    assert records.complete("a", attempt, body("a"))
    sums = {name: figure for name, figure in records.counters().items() if name.endswith(("_seconds:sum", ":min"))}
    assert len(sums) >= 10
    assert all(figure >= 0 for figure in sums.values()), sums


def test_counters_are_true_under_threads(records: JobStore) -> None:
    def live(name: str) -> None:
        for number in range(25):
            records.create(f"{name}-{number}", EVALUATE)
            claim = records.claim("w")
            assert claim is not None, "as many have been recorded as were begun, and one more"
            assert records.enter_stage(claim.job_id, claim.attempt, Stage.LOAD)
            assert records.complete(claim.job_id, claim.attempt, body(claim.job_id))

    together(*(partial(live, name) for name in "abcd"))
    counters = records.counters()
    assert counters["submitted"] == counters["completed"] == counters["by_state:completed"] == 100
    assert counters["end_to_end_seconds:count"] == 100


def test_every_move_is_announced(records: JobStore, redis: Redis) -> None:
    with redis.pubsub(ignore_subscribe_messages=True) as changes:  # type: ignore[no-untyped-call]
        changes.subscribe("jobs:changed")
        records.create("a", EVALUATE)
        attempt = run_to(records, "a", Stage.BUILD, Stage.LOAD)
        records.complete("a", attempt, body("a"))
        heard = 0
        deadline = time.monotonic() + 20
        while heard < 3 and time.monotonic() < deadline:
            message = changes.get_message(timeout=1)
            heard += message is not None and message["data"] == b"a"
    assert heard == 3, "nobody can wait for a job before it is recorded"


def test_a_client_that_decodes_reads_the_same(records: JobStore, redis_url: str) -> None:
    records.create("a", EVALUATE, batch_id="b")
    with Redis.from_url(redis_url, decode_responses=True) as decoding:
        other = JobStore(decoding, ttl_s=60)
        assert other.get("a") == records.get("a")
        assert other.list() == records.list()
        assert other.claim("w") is not None
        assert other.pulse("a", 1) == "go on"
        assert other.counters().keys() == records.counters().keys()


def key(key_id: str, max_jobs: int) -> Key:
    return Key(key_id, key_id, frozenset(), "", 0.0, 60, max_jobs)


def end_cancelled_while_running(records: JobStore, job_id: str, _: Redis) -> None:
    attempt = run_to(records, job_id, Stage.LOAD)
    records.cancel(job_id)
    assert records.finish_cancelled(job_id, attempt)


def end_cancelled_by_requeue(records: JobStore, job_id: str, _: Redis) -> None:
    attempt = run_to(records, job_id)
    records.cancel(job_id)
    assert not records.requeue(job_id, attempt, "lost")


def end_after_all_attempts(records: JobStore, job_id: str, _: Redis) -> None:
    for _ in range(MAX_ATTEMPTS):
        records.requeue(job_id, run_to(records, job_id), "lost")


def end_by_a_request_that_cannot_be_read(records: JobStore, job_id: str, redis: Redis) -> None:
    redis.set(f"job:{job_id}:request", "{")
    assert records.claim("w") is None


End = Callable[[JobStore, str, Redis], Any]
ENDS: list[End] = [
    lambda records, job_id, _: records.complete(job_id, run_to(records, job_id, Stage.LOAD), body(job_id)),
    lambda records, job_id, _: records.fail(job_id, run_to(records, job_id), "broken"),
    lambda records, job_id, _: records.cancel(job_id),
    end_cancelled_while_running,
    end_cancelled_by_requeue,
    end_after_all_attempts,
    end_by_a_request_that_cannot_be_read,
]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_gives_the_keys_place_back_once(records: JobStore, redis: Redis, end: End) -> None:
    owner = key("k1", max_jobs=2)
    assert records.create("a", EVALUATE, key=owner) and records.create("b", EVALUATE, key=owner)
    assert not records.create("c", EVALUATE, key=owner)
    assert records.create("b", EVALUATE, key=owner), "a call that is repeated after a lost answer"
    assert records.get("c") is None
    end(records, "a", redis)
    assert seen(records, "a").state.terminal
    records.cancel("a")
    assert records.create("c", EVALUATE, key=owner)
    assert not records.create("d", EVALUATE, key=owner)
    assert redis.smembers("jobs:open:k1") == {b"b", b"c"}


def test_a_job_that_is_queued_again_keeps_its_place(records: JobStore) -> None:
    owner = key("k1", max_jobs=1)
    records.create("a", EVALUATE, key=owner)
    assert records.requeue("a", run_to(records, "a"), "lost")
    assert not records.create("b", EVALUATE, key=owner)


def test_places_are_exact_while_jobs_begin_and_end(records: JobStore, redis: Redis) -> None:
    owner = key("k1", max_jobs=5)

    def live(thread: int) -> int:
        most = 0
        for number in range(40):
            job_id = f"{thread}-{number}"
            if records.create(job_id, EVALUATE, key=owner):
                most = max(most, redis.scard("jobs:open:k1"))
                together(partial(records.cancel, job_id), partial(records.cancel, job_id))
        return most

    assert 1 <= max(together(*[partial(live, thread) for thread in range(8)])) <= 5
    assert redis.exists("jobs:open:k1") == 0


def test_nothing_of_a_key_is_left_when_its_jobs_are_forgotten(records: JobStore, redis: Redis) -> None:
    records.create_many([NewJob("a", EVALUATE), NewJob("b", EVALUATE)], batch_id="x", key=key("k1", 9))
    records.cancel("a")
    records.cancel("b")
    assert records.cleanup(records.now() + 1) == 2
    assert [name for name in redis.keys("*") if b"k1" in name] == []


def living(redis: Redis, *names: str) -> None:
    redis.delete(NAMES)
    for name in names:
        redis.sadd(NAMES, name)
        redis.set(f"worker:{name}", "{}", ex=60)


def test_failed_attempts_are_told_with_their_worker_stage_and_reason(records: JobStore) -> None:
    records.create("a", EVALUATE)
    assert seen(records, "a").failed_attempts == []
    first = run_to(records, "a", Stage.WAIT_FOR_DEVICE, Stage.LOAD)
    assert records.requeue("a", first, 'the "zygote" died \ud800' + "!" * 5000)
    assert records.fail("a", run_to(records, "a"), "broken")
    one, two = seen(records, "a").failed_attempts
    assert (one.attempt, one.worker, one.stage) == (1, "w", "load")
    assert one.reason.startswith('the "zygote" died ?!!!') and len(one.reason) == REASON_CHARS
    assert (two.attempt, two.worker, two.stage, two.reason) == (2, "w", "build", "broken")
    assert one.at < two.at


def test_a_job_goes_to_a_living_worker_that_has_not_failed_it(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 60)
    living(redis, "a", "b")
    redis.sadd(NAMES, "dead")
    records.create("job", EVALUATE)
    assert records.claim("a") is not None
    assert records.requeue("job", 1, "fault") == queue_of_worker("b")
    assert records.claim("a") is None
    assert records.claim("b") is not None
    assert records.requeue("job", 2, "fault") is None, "all that live have failed it: its last attempt waits"
    assert records.claim("a") is None


def test_jobs_that_failed_together_have_their_last_attempts_one_after_another(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may have ended their worker each time."""
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 0.001)
    for job_id in ("ends its worker", "right"):
        records.create(job_id, EVALUATE)
    for attempt in (1, 2):
        assert records.claim("a") is not None and records.claim("a") is not None
        for job_id in ("ends its worker", "right"):
            records.requeue(job_id, attempt, "its worker died")
    for job_id in ("ends its worker", "right"):
        assert records.claim("a") is None
        until(lambda job_id=job_id: records.queue.end_pause() == (job_id, COMMON))
        claim = records.claim("a")
        assert claim is not None and (claim.job_id, claim.attempt) == (job_id, MAX_ATTEMPTS)
        assert records.queue.end_pause() is None
        records.requeue(job_id, MAX_ATTEMPTS, "its worker died")


def test_paused_jobs_whose_gpu_no_worker_has_hold_up_no_others(
    records: JobStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where there are as many as are looked at."""
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 0.001)
    monkeypatch.setattr(job_queue, "MAX_PAUSED", 1)
    living(redis, "a", "b")
    redis.hset(MODELS, mapping={"a": "h100", "b": "h200"})
    for job_id, worker, gpu in (("away", "a", "h100"), ("served", "b", "h200")):
        records.create(job_id, replace(EVALUATE, gpu=gpu))
        for attempt in (1, 2):
            assert records.claim(worker, gpu) is not None
            records.requeue(job_id, attempt, "its worker died")
    redis.delete("worker:a")
    until(lambda: records.queue.end_pause() == ("served", queue_of_gpu("h200")))
    assert records.cancel("served") is not None and records.queue.end_pause() is None
    living(redis, "a", "b")
    assert records.queue.end_pause() == ("away", queue_of_gpu("h100"))


def test_a_job_pauses_before_its_last_attempt_and_may_be_cancelled_meanwhile(
    records: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its worker lives or not: a host without processes or descriptors cannot even send a heartbeat."""
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 60)
    records.create("job", EVALUATE)
    for attempt, queue in ((1, COMMON), (2, None)):
        assert records.claim("a") is not None
        assert records.requeue("job", attempt, "the disk is full") == queue
    assert records.queue.stranded(9) == [] and records.queue.end_pause() is None
    (listed,), view = records.list(), seen(records, "job")
    assert (view.state, view.queue_position, listed.queue_position) == (State.QUEUED, None, None), "it is not the next"
    assert records.queue_length() == 1
    records.cancel("job")
    assert seen(records, "job").state is State.CANCELLED


def test_the_only_worker_tries_again(records: JobStore, redis: Redis) -> None:
    living(redis, "a")
    records.create("job", EVALUATE)
    assert records.claim("a") is not None
    assert records.requeue("job", 1, "fault") == COMMON
    assert records.claim("a") is not None


def test_the_worker_with_the_shortest_line_of_its_own_is_chosen(records: JobStore, redis: Redis) -> None:
    living(redis, "a", "b", "c")
    for job_id in ("first", "second"):
        records.create(job_id, EVALUATE)
        assert records.claim("a") is not None
    chosen = {records.requeue("first", 1, "fault"), records.requeue("second", 1, "fault")}
    assert chosen == {queue_of_worker("b"), queue_of_worker("c")}
    redis.hset("workers:quarantined", mapping={"b": "broken", "c": "broken"})
    assert records.queue.move("first") == records.queue.move("second") == COMMON


def test_a_queue_takes_exactly_what_it_may_from_many_at_once(records: JobStore, redis: Redis) -> None:
    limits = Limits(queue=20)
    admitted = together(
        *[
            lambda thread=thread: [
                records.create(f"{thread}-{number}", EVALUATE, limits=limits) for number in range(10)
            ]
            for thread in range(8)
        ]
    )
    answers = [one for each in admitted for one in each]
    assert sum(isinstance(one, Accepted) for one in answers) == records.queue_length() == 20
    assert answers.count(Refusal.QUEUE_IS_FULL) == 60
    assert records.counters()["submitted"] == len(redis.keys("job:*:request")) == 20, "of the others nothing is there"


def test_bytes_are_counted_through_a_jobs_life(records: JobStore, redis: Redis) -> None:
    limits = Limits(memory=6000)
    first = records.create("a", EVALUATE, limits=limits)
    assert isinstance(first, Accepted) and first.new
    assert records.create("b", EVALUATE, limits=limits)
    assert records.create("c", EVALUATE, limits=limits) is Refusal.MEMORY_IS_FULL
    again = records.create("a", EVALUATE, limits=limits)
    assert isinstance(again, Accepted) and (again.at, again.new, again.answered) == (first.at, False, False)
    assert records.create("a", COMPARE, limits=limits) is Refusal.OTHER_REQUEST
    queued = records.stored_bytes()
    assert records.complete("a", run_to(records, "a"), body("a"))
    assert records.cancel("b")
    answered = len(redis.get("job:a:result") or b"") + len(redis.hget("job:a", "summary") or b"")
    assert records.stored_bytes() == queued - len(redis_request()) + answered, "a cancelled job keeps its request"
    records.cleanup(records.now() + 1)
    assert records.stored_bytes() == 0


def test_one_keys_jobs_leave_room_for_others(records: JobStore, redis: Redis) -> None:
    limits, alice, bob = Limits(memory=9_000), key("alice", 9), key("bob", 9)
    assert records.create("a", EVALUATE, key=alice, limits=limits)
    assert records.create("b", EVALUATE, key=alice, limits=limits) is Refusal.KEY_MEMORY_IS_FULL
    assert records.create("c", EVALUATE, key=bob, limits=limits)
    assert records.room("a", limits) == limits.share - records.stored_bytes() // 2
    assert records.room("unknown", limits) == limits.memory - records.stored_bytes()
    # What its result takes is the key's, too.
    large = {**body("a"), "told": "x" * 1000}
    assert records.complete("a", run_to(records, "a"), large)
    taken = int(redis.hget("jobs:bytes:of_key", alice.key_id) or 0)
    assert taken == records.stored_bytes() - int(redis.hget("jobs:bytes:of_key", bob.key_id) or 0) > 1000 + 2048
    assert records.room("a", limits) == limits.share - taken
    assert records.create("d", EVALUATE, limits=limits), "without a key there is no share"
    assert records.cancel("d")
    records.cleanup(records.now() + 1)
    assert redis.hgetall("jobs:bytes:of_key").keys() == {b"bob"}
    assert records.create("e", EVALUATE, key=alice, limits=limits)


def redis_request() -> str:
    """EVALUATE as it is stored."""
    return json.dumps(EVALUATE.to_wire(), separators=(",", ":"))


def test_a_name_is_counted_and_leaves_with_its_last_job_however_that_ends(records: JobStore, redis: Redis) -> None:
    named, alice, limits = replace(EVALUATE, name="n" * 200), key("alice", 9), Limits(queue=2)
    assert records.create("a", named, key=alice) and records.create("b", named, key=alice, batch_id="all")
    assert records.stored_bytes() > 2 * (len(redis_request()) + 2048 + 4 * 200), "two indexes, for the key and for all"
    assert records.create("c", replace(named, name="refused"), key=alice, limits=limits) is Refusal.QUEUE_IS_FULL
    assert records.create("a", named, key=alice), "sent again"
    assert redis.zrange("jobs:names:alice", 0, -1) == redis.zrange("jobs:names:", 0, -1) == [b"n" * 200]
    assert records.complete("a", run_to(records, "a"), body("a"))
    assert records.cancel("b")
    assert len(records.newest_named("", alice.key_id, 9)) == 1 and records.newest_named("", "bob", 9) == []
    assert records.cleanup(records.now() + 1) == 2
    assert redis.keys("jobs:name*") == [] and records.stored_bytes() == 0
