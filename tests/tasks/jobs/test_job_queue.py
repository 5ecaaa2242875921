"""The order of queued jobs: priority, share, expected time, arrival; and a plain model that has to agree with it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from redis import Redis

from domain.access import Key
from domain.budget import Budget
from domain.job import Stage, State
from domain.request import Request
from tasks.jobs import job_queue
from tasks.jobs.admission import NewJob
from tasks.jobs.job_queue import COMMON, Message, QueueStats, queue_of_gpu, queue_of_worker
from tasks.jobs.job_store import MAX_ATTEMPTS, JobStore
from tests.tasks.example_jobs import COMPARE, EVALUATE, report, seen

SLICE_S, FIRST_GUESS_S = 30.0, 5.0


@pytest.fixture
def records(redis: Redis) -> JobStore:
    return JobStore(redis, ttl_s=60)


def key(name: str) -> Key:
    return Key(name, name, frozenset(), "", 0.0, 60, 10_000)


def living(redis: Redis, **models: str) -> None:
    """These workers live, each with a GPU of that model."""
    for name, model in models.items():
        redis.sadd("workers", name)
        redis.set(f"worker:{name}", "{}", ex=60)
        redis.hset("workers:gpu", name, model)


def expect(redis: Redis, request: Request, seconds: float) -> None:
    redis.hset("jobs:expected", request.kind, f"{seconds}")


def begun(records: JobStore, count: int, worker: str = "w", gpu: str = "") -> list[str]:
    """The next so many, in order."""
    claims = [records.claim(worker, gpu) for _ in range(count)]
    return [claim.job_id for claim in claims if claim is not None]


@pytest.mark.parametrize("stored", [b"not JSON", b"[]", b"5", b"{}", b'{"kernel": 5}', b"\xff\xfe"])
def test_a_request_that_cannot_be_read_ends_its_job_and_no_other(
    records: JobStore, redis: Redis, stored: bytes
) -> None:
    for name in ("damaged", "whole"):
        records.create(name, EVALUATE)
    redis.set("job:damaged:request", stored)
    assert begun(records, 2) == ["whole"]
    damaged = seen(records, "damaged")
    assert damaged.state is State.FAILED and "submit the job again" in str(damaged.failed_attempts)


def test_higher_priorities_go_first_and_equals_in_the_order_of_their_arrival(records: JobStore) -> None:
    for name, priority in (("a", 5), ("b", 0), ("c", 9), ("d", 5), ("e", 9)):
        records.create(name, replace(EVALUATE, priority=priority))
    assert [seen(records, name).queue_position for name in "abcde"] == [2, 4, 0, 3, 1]
    assert begun(records, 6) == ["c", "e", "a", "d", "b"]


def test_a_claim_names_the_key_of_its_job(records: JobStore) -> None:
    records.create("without", EVALUATE)
    assert (claim := records.claim("w")) is not None and claim.request == EVALUATE
    records.create_many([NewJob("with", EVALUATE)], batch_id=None, key=key("ann"))
    assert (claim := records.claim("w")) is not None and claim.request == replace(EVALUATE, owner="ann")


def test_a_key_with_much_does_not_hold_up_one_with_little(records: JobStore, redis: Redis) -> None:
    expect(redis, EVALUATE, SLICE_S)
    records.create_many([NewJob(f"much-{number}", EVALUATE) for number in range(50)], batch_id=None, key=key("much"))
    assert begun(records, 2) == ["much-0", "much-1"]
    records.create_many([NewJob(f"little-{number}", EVALUATE) for number in range(3)], batch_id=None, key=key("little"))
    assert begun(records, 8) == [
        *("little-0", "much-2", "little-1", "much-3", "little-2", "much-4"),
        *("much-5", "much-6"),
    ]


def test_a_share_is_of_time_so_that_smaller_pieces_are_worth_no_more(records: JobStore, redis: Redis) -> None:
    expect(redis, COMPARE, 4 * SLICE_S)
    expect(redis, EVALUATE, SLICE_S)
    records.create_many([NewJob(f"large-{number}", COMPARE) for number in range(10)], batch_id=None, key=key("large"))
    records.create_many([NewJob(f"small-{number}", EVALUATE) for number in range(40)], batch_id=None, key=key("small"))
    order = begun(records, 25)
    assert (sum("large" in name for name in order), sum("small" in name for name in order)) == (5, 20)


def test_an_attempt_that_we_failed_costs_no_more_than_was_expected(records: JobStore, redis: Redis) -> None:
    expect(redis, EVALUATE, SLICE_S)
    records.create("slow-0", EVALUATE, key=key("slow"))
    records.create("quick-0", EVALUATE, key=key("quick"))
    for name, minute in (("slow-0", 60), ("quick-0", 0)):
        claim = records.claim("w")
        assert claim is not None and claim.job_id == name
        redis.hset(f"job:{name}", "spent:build", SLICE_S + minute)
        assert records.fail(name, 1, "no matter how it ends")
    expect(redis, EVALUATE, SLICE_S)
    for number in range(1, 4):
        for name in ("slow", "quick"):
            records.create(f"{name}-{number}", EVALUATE, key=key(name))
    assert begun(records, 2) == ["slow-1", "quick-1"]


def test_a_key_pays_for_what_its_jobs_took(records: JobStore, redis: Redis) -> None:
    expect(redis, EVALUATE, SLICE_S)
    for name in ("slow", "quick"):
        records.create(f"{name}-0", EVALUATE, key=key(name))
    for name, seconds in (("slow", 3 * SLICE_S), ("quick", SLICE_S)):
        claim = records.claim("w")
        assert claim is not None and claim.job_id == f"{name}-0"
        redis.hset(f"job:{name}-0", "spent:build", seconds)
        assert records.complete(f"{name}-0", 1, report().body(f"{name}-0"))
    redis.delete("jobs:expected", *redis.keys("jobs:took:*"))
    expect(redis, EVALUATE, SLICE_S)
    for number in range(1, 4):
        for name in ("slow", "quick"):
            records.create(f"{name}-{number}", EVALUATE, key=key(name))
    assert begun(records, 6) == ["quick-1", "quick-2", "slow-1", "quick-3", "slow-2", "slow-3"]


def test_what_is_cancelled_before_it_began_costs_nothing(records: JobStore, redis: Redis) -> None:
    expect(redis, EVALUATE, SLICE_S)
    for number in range(20):
        records.create(f"gone-{number}", EVALUATE, key=key("a"))
    records.create("theirs", EVALUATE, key=key("b"))
    records.create("theirs too", EVALUATE, key=key("b"))
    for number in range(20):
        records.cancel(f"gone-{number}")
    records.create("mine", EVALUATE, key=key("a"))
    assert begun(records, 3) == ["theirs", "mine", "theirs too"]


def test_who_comes_back_has_saved_nothing_up(records: JobStore, redis: Redis) -> None:
    expect(redis, EVALUATE, SLICE_S)
    records.create_many([NewJob(f"busy-{number}", EVALUATE) for number in range(40)], batch_id=None, key=key("busy"))
    begun(records, 30)
    records.create_many([NewJob(f"new-{number}", EVALUATE) for number in range(10)], batch_id=None, key=key("new"))
    order = begun(records, 10)
    assert sum(name.startswith("new") for name in order) == 5


def test_within_a_slice_of_its_share_what_is_short_goes_first(records: JobStore, redis: Redis) -> None:
    quick = replace(EVALUATE, budget=Budget.QUICK)
    expect(redis, COMPARE, 9.0)
    expect(redis, EVALUATE, 4.0)
    expect(redis, quick, 0.5)
    for name, request in (("long", COMPARE), ("mean", EVALUATE), ("short", quick), ("next", quick)):
        records.create(name, request)
    assert begun(records, 4) == ["short", "next", "mean", "long"]
    # But a slice is all: nobody is passed by without end.
    records.create("long too", COMPARE)
    records.create_many([NewJob(f"short-{number}", quick) for number in range(200)], batch_id=None)
    order = begun(records, 201)
    assert order.index("long too") <= SLICE_S / 0.5


def test_the_same_work_is_expected_to_take_what_it_took(records: JobStore, redis: Redis) -> None:
    records.create("first", EVALUATE)
    assert records.claim("w") is not None
    assert records.enter_stage("first", 1, Stage.WAIT_FOR_DEVICE)
    assert records.enter_stage("first", 1, Stage.LOAD)
    redis.hset("job:first", "spent:build", 12.0)
    assert records.complete("first", 1, report().body("first"))
    kind = float(redis.hget("jobs:expected", EVALUATE.kind) or 0)
    assert 12.0 <= kind < 13.0
    redis.hset("jobs:expected", EVALUATE.kind, 100.0)
    again = replace(EVALUATE, priority=7, timeout=99)
    assert again.work == EVALUATE.work
    records.create("again", again)
    assert 12.0 <= float(redis.hget("job:again", "expected") or 0) < 13.0
    records.create("else", replace(EVALUATE, num_trials=3))
    assert float(redis.hget("job:else", "expected") or 0) == 100.0
    records.create("unheard of", COMPARE)
    assert float(redis.hget("job:unheard of", "expected") or 0) == FIRST_GUESS_S


def test_one_of_so_many_is_whoever_has_waited_longest(records: JobStore, redis: Redis) -> None:
    for number in range(3):
        records.create(f"low-{number}", replace(EVALUATE, priority=0))
    ages = f"jobs:line:{COMMON}:age"
    for place in redis.zrange(ages, 0, -1):
        redis.zincrby(ages, -job_queue.LONG_WAIT_S - 1, place)
    for number in range(20):
        records.create(f"high-{number}", replace(EVALUATE, priority=9))
    order = begun(records, 12)
    assert [name for name in order if name.startswith("low")] == ["low-0", "low-1", "low-2"]
    assert [order.index(f"low-{number}") for number in range(3)] == [3, 7, 11]


def test_a_gpu_is_asked_for_by_its_name(records: JobStore, redis: Redis) -> None:
    living(redis, a="h200", b="cpu")
    wants = replace(EVALUATE, gpu="h200")
    assert not records.create("none", replace(EVALUATE, gpu="h100"))
    records.create("any", EVALUATE)
    records.create("first", wants)
    records.create("second", replace(wants, priority=9))
    assert [seen(records, name).queue_position for name in ("any", "first", "second")] == [1, 2, 0]
    assert begun(records, 2, "b", "cpu") == ["any"]
    assert begun(records, 3, "a", "h200") == ["second", "first"]
    assert records.requeue("first", 1, "the card is gone") == queue_of_gpu("h200"), "no other has one"
    living(redis, c="h200")
    assert records.queue.move("first") == queue_of_worker("c")
    redis.delete("worker:c")
    assert records.queue.move("first") == queue_of_gpu("h200")


def test_whoever_takes_from_another_line_says_that_a_message_is_lacking(records: JobStore, redis: Redis) -> None:
    living(redis, a="h200")
    special = queue_of_gpu("h200")
    records.create("urgent", replace(EVALUATE, gpu="h200", priority=9))
    records.create("common", EVALUATE)
    redis.rpush(special, "message")
    claim = records.claim("a", "h200", Message("common.1", COMMON))
    assert claim is not None and (claim.job_id, claim.queue_to_wake) == ("urgent", COMMON)
    redis.rpush(COMMON, "message")
    redis.rpop(special)
    assert records.queue.all() == [QueueStats(COMMON, 1, 1)]
    claim = records.claim("a", "h200", Message("urgent.1", special))
    assert claim is not None and (claim.job_id, claim.queue_to_wake) == ("common", None), "its line is empty"


def test_spent_shares_are_forgotten(records: JobStore, redis: Redis) -> None:
    expect(redis, EVALUATE, 1.0)
    for name in ("a", "b"):
        records.create(name, EVALUATE, key=key(name))
        begun(records, 1)
        records.cancel(name)
        assert records.finish_cancelled(name, 1)
    for number in range(5):
        records.create(f"c-{number}", EVALUATE, key=key("c"))
    begun(records, 5)
    records.cleanup(0.0)
    assert [name for name in redis.hgetall("jobs:shares") if not name.endswith(b":c")] == []


@dataclass
class Queued:
    name: str
    priority: int
    flow: str
    start: float
    expected: float
    number: int
    line: str

    @property
    def place(self) -> tuple[int, int, int, int]:
        return (9 - self.priority, int(self.start // SLICE_S), int(self.expected * 1000), self.number)


class PlainOrder:
    """What the scripts should do, in Python. Nobody waits long in it."""

    def __init__(self) -> None:
        self.jobs: dict[str, Queued] = {}
        self.reached: dict[int, float] = {}
        self.ends: dict[tuple[int, str], float] = {}
        self.count = 0

    def create(self, name: str, priority: int, flow: str, expected: float, line: str) -> None:
        start = max(self.reached.get(priority, 0.0), self.ends.get((priority, flow), 0.0))
        self.ends[priority, flow] = start + expected
        self.count += 1
        self.jobs[name] = Queued(name, priority, flow, start, expected, self.count, line)

    def first(self, lines_: tuple[str, ...]) -> Queued | None:
        return min((job for job in self.jobs.values() if job.line in lines_), key=lambda job: job.place, default=None)

    def begin(self, lines_: tuple[str, ...]) -> Queued | None:
        job = self.first(lines_)
        if job is not None:
            del self.jobs[job.name]
            common = [each for each in self.jobs.values() if (each.line, each.priority) == (COMMON, job.priority)]
            head = min(common, key=lambda each: each.place, default=job)
            self.reached[job.priority] = max(self.reached.get(job.priority, 0.0), min(job.start, head.start))
        return job

    def settle(self, job: Queued, took: float) -> None:
        self.ends[job.priority, job.flow] += took - job.expected

    def order(self) -> list[str]:
        return [job.name for job in sorted(self.jobs.values(), key=lambda job: job.place)]


WORKERS = {"a": "h200", "b": "h200", "c": "cpu"}


class Scheduling(RuleBasedStateMachine):
    """Jobs come, begin, end, are cancelled, fall to others, while the plain order is asked the same."""

    redis: Redis

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        living(self.redis, **WORKERS)
        self.records = JobStore(self.redis, 600)
        self.model = PlainOrder()
        self.running: dict[str, tuple[Queued, int]] = {}
        self.tried: dict[str, set[str]] = {}
        self.number = 0

    @initialize()
    def guesses(self) -> None:
        for request in (EVALUATE, COMPARE):
            expect(self.redis, request, 7.25 if request is EVALUATE else 42.5)

    @rule(
        priority=st.sampled_from((0, 5, 9)),
        flow=st.sampled_from(("", "x", "y")),
        request=st.sampled_from((EVALUATE, COMPARE)),
        gpu=st.sampled_from((None, None, "h200", "cpu")),
    )
    def create(self, priority: int, flow: str, request: Request, gpu: str | None) -> None:
        self.number += 1
        name = f"job-{self.number}"
        asked = replace(request, priority=priority, gpu=gpu)
        assert self.records.create(name, asked, key=key(flow) if flow else None)
        self.model.create(name, priority, flow, 7.25 if request is EVALUATE else 42.5, queue_of_gpu(gpu))

    @rule(worker=st.sampled_from(sorted(WORKERS)))
    def begin(self, worker: str) -> None:
        model = WORKERS[worker]
        expected = self.model.begin((COMMON, queue_of_gpu(model), queue_of_worker(worker)))
        claim = self.records.claim(worker, model)
        assert (claim and claim.job_id) == (expected and expected.name)
        if claim is not None and expected is not None:
            self.running[claim.job_id] = (expected, claim.attempt)
            self.tried.setdefault(claim.job_id, set()).add(worker)

    @precondition(lambda self: self.running)
    @rule(draw=st.randoms(use_true_random=False))
    def end(self, draw: random.Random) -> None:
        name = draw.choice(sorted(self.running))
        job, attempt = self.running.pop(name)
        # No time passes but this; what no attempt of ours has failed is settled.
        self.redis.hset(f"job:{name}", "spent:build", 30.0)
        self.redis.hset(f"job:{name}", "since", f"{self.records.now() + 60:.6f}")
        assert self.records.cancel(name) is not None
        assert self.records.finish_cancelled(name, attempt)
        if attempt == 1:
            self.model.settle(job, 30.0)

    @precondition(lambda self: self.running)
    @rule(draw=st.randoms(use_true_random=False))
    def lose(self, draw: random.Random) -> None:
        name = draw.choice(sorted(self.running))
        job, attempt = self.running.pop(name)
        line = self.records.requeue(name, attempt, "its worker died")
        if attempt == MAX_ATTEMPTS:
            assert line is None
            return
        gpu = job.line.removeprefix(f"{COMMON}.gpu.") if ".gpu." in job.line else seen(self.records, name).gpu
        others = {each for each, model in WORKERS.items() if each not in self.tried[name] and gpu in (None, model)}
        if others:
            lengths = {each: sum(q.line == queue_of_worker(each) for q in self.model.jobs.values()) for each in others}
            fewest = min(lengths.values())
            assert line in {queue_of_worker(each) for each in others if lengths[each] == fewest}
        else:
            assert line == queue_of_gpu(gpu)
        assert line is not None
        self.model.jobs[name] = replace(job, line=line)

    @precondition(lambda self: self.model.jobs)
    @rule(draw=st.randoms(use_true_random=False))
    def cancel(self, draw: random.Random) -> None:
        job = self.model.jobs.pop(draw.choice(sorted(self.model.jobs)))
        assert self.records.cancel(job.name) is not None
        if job.name not in self.tried:
            self.model.settle(job, 0.0)

    @invariant()
    def every_job_stands_where_it_should(self) -> None:
        order = self.model.order()
        assert [place.decode().split(":", 4)[4] for place in self.redis.zrange("jobs:queue", 0, -1)] == order
        assert self.records.queue_length() == len(order)
        if order:
            assert seen(self.records, order[-1]).queue_position == len(order) - 1
        found = {line.name: line.jobs for line in self.records.queue.all()}
        lengths: dict[str, int] = {}
        for job in self.model.jobs.values():
            lengths[job.line] = lengths.get(job.line, 0) + 1
        assert found == lengths
        for line, length in lengths.items():
            assert self.redis.zcard(f"jobs:line:{line}:age") == length


@pytest.fixture
def machine(redis: Redis) -> Iterator[type[Scheduling]]:
    Scheduling.redis = redis
    yield Scheduling


def test_the_scripts_agree_with_a_plain_order(machine: type[Scheduling]) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    quick = settings(
        max_examples=25,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(machine, settings=quick)  # type: ignore[no-untyped-call]
