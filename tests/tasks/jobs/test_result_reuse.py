"""An earlier answer given again: to the same key, for the same work, where it would come out alike, if asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from domain.access import Key
from domain.budget import Budget
from domain.fault import NO_TEMPORARY
from domain.flags.codes import CUT_SHORT
from domain.inputs import DrawOn
from domain.job import State
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Outcome, Report, Status
from profiling.stats.stopping_rule import Stop
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.admission import Accepted, NewJob
from tasks.jobs.job_store import JobStore
from tasks.jobs.result_reuse import reusable
from tasks.jobs.submit import submit, submit_many
from tasks.node.device_info import CPU, Device
from tests.tasks.example_jobs import EVALUATE, report, seen

AGAIN = replace(EVALUATE, reuse=True)
H200 = Device("GPU-1", 0, "NVIDIA H200", "h200", "580.1")


def key(name: str) -> Key:
    return Key(name, name, frozenset(), "", 0.0, 60, 10)


@pytest.fixture
def records(redis: Redis) -> JobStore:
    Heartbeat(redis, "w", CPU, 1, {}).beat()
    return JobStore(redis, ttl_s=60)


def judged(
    records: JobStore, job_id: str, request: Request = EVALUATE, verdict: Status = Status.PASSED, owner: str = "k"
) -> None:
    assert records.create(job_id, request, key=key(owner))
    claim = records.claim("w")
    assert claim is not None and claim.job_id == job_id
    assert records.complete(job_id, claim.attempt, report(verdict).body(job_id))


def asked(records: JobStore, request: Request = AGAIN, owner: str = "k") -> str | None:
    """The job whose answer is given again, None where it is judged anew; nothing stays queued."""
    job_id = submit(records, request, key=key(owner)).job_id
    view = seen(records, job_id)
    if view.state is State.QUEUED:
        records.cancel(job_id)
        return None
    assert view.result is not None
    return str(view.result["reused_from"]["job_id"])


def test_an_answer_is_given_again_and_says_where_from(records: JobStore, redis: Redis) -> None:
    judged(records, "first")
    before = records.counters()
    job_id = submit(records, AGAIN, key=key("k"), batch_id="b").job_id
    view, first = seen(records, job_id), seen(records, "first")
    assert (view.state, view.attempt, view.worker, view.queue_position) == (State.COMPLETED, 0, None, None)
    assert view.result is not None and first.result is not None and "reused_from" not in first.result
    assert [step.stage for step in view.timeline] == ["queued", "done"]
    reused_from = view.result.pop("reused_from")
    assert reused_from["job_id"] == "first"
    assert abs(reused_from["at"] - first.timeline[-1].at) < 1e-3
    assert view.result == {**first.result, "job_id": job_id}
    assert redis.llen("evaluate") == 0 and records.queue_length() == 0, "nothing is to be done"
    after = records.counters()
    changed = {name for name in after if after[name] != before.get(name) and "average_age" not in name}
    assert changed == {
        *("submitted", "completed", "reused", "jobs", "by_state:completed", "finished_last_300_s"),
        *("by_kernel_type:torch", "by_operation:evaluate", "ended:torch:evaluate:completed:passed"),
    }
    assert redis.exists("jobs:open:k") == 0
    (one,) = submit_many(records, [NewJob("many", AGAIN)], key=key("k"))
    assert isinstance(one, Accepted) and one.answered
    assert redis.llen("evaluate") == 0


def test_only_who_asks_and_only_for_the_same(records: JobStore) -> None:
    judged(records, "first")
    assert asked(records, EVALUATE) is None, "never by itself"
    assert asked(records, AGAIN) == "first"
    assert asked(records, replace(AGAIN, priority=9, timeout=77, queue_timeout=5)) == "first"
    for other in (
        replace(AGAIN, kernel=Kernel("class Model: pass", KernelType.TORCH)),
        replace(AGAIN, kernel=Kernel(EVALUATE.kernel.source_code, KernelType.TORCH_CUDA)),
        replace(AGAIN, reference=EVALUATE.kernel),
        replace(AGAIN, rtol=1e-3),
        replace(AGAIN, budget=Budget.QUICK),
        replace(AGAIN, target_precision=0.2),
        replace(AGAIN, profile=True),
        replace(AGAIN, draw_on=DrawOn.HOST),
        replace(AGAIN, determinism=True),
        replace(AGAIN, gradients=True),
        replace(AGAIN, replay_seed="ab"),
    ):
        assert asked(records, other) is None, other


def test_a_replay_is_never_answered_from_before(records: JobStore) -> None:
    replay = replace(AGAIN, replay_seed="ab")
    judged(records, "first", replay)
    assert asked(records, replay) is None


def test_another_keys_answers_are_its_own(records: JobStore) -> None:
    judged(records, "first", owner="k")
    assert asked(records, owner="other") is None
    assert submit(records, AGAIN, job_id="without").job_id == "without"
    assert seen(records, "without").state is State.QUEUED


@pytest.mark.parametrize("verdict", Status)
def test_only_verdicts_that_come_out_again(records: JobStore, verdict: Status) -> None:
    judged(records, "first", verdict=verdict)
    kept = {Status.PASSED, Status.COMPILE_ERROR, Status.WRONG_RESULT, Status.CONTRACT_MISMATCH}
    assert asked(records) == ("first" if verdict in kept else None)


@pytest.mark.parametrize(
    ("log", "again"),
    [
        ("main.cpp:3:1: error: 'y' was not declared in this scope", True),
        ("c++: fatal error: Killed signal terminated program cc1plus", False),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", False),
        ("internal compiler error: Segmentation fault", False),
        ("/tmp/cc.s: No space left on device", False),
        ("main.cpp:1:2: error: #error Killed", False),
        (f"PermissionError: [Errno 13] Permission denied: '/tmp/ext' ({NO_TEMPORARY})", False),
    ],
)
def test_a_compile_error_that_may_be_of_the_moment_is_not_given_again(log: str, again: bool, records: JobStore) -> None:
    fault = Outcome(Status.COMPILE_ERROR, "torch", message="importing the source", log=log)
    body = Report(fault, {}).body("first")
    assert body["verdict"] == "compile_error" and log in body["kernel_exec_result"]["compilation_error"]
    assert reusable(body) is again


UNAVAILABLE = {"status": "unavailable"}


@pytest.mark.parametrize(
    ("metrics", "sanitizer", "verdict", "again"),
    [
        ({"status": "measured", "candidate": {"status": "measured"}}, None, Status.PASSED, True),
        (None, {"status": "clean", "tools": {"memcheck": {"status": "clean"}}}, Status.PASSED, True),
        (UNAVAILABLE, None, Status.PASSED, False),
        ({"status": "measured", "reference": UNAVAILABLE}, None, Status.WRONG_RESULT, False),
        (None, {"status": "findings", "tools": {"racecheck": UNAVAILABLE}}, Status.PASSED, False),
        (UNAVAILABLE, UNAVAILABLE, Status.COMPILE_ERROR, True),
    ],
)
def test_an_answer_that_lacks_what_was_asked_for_is_not_given_again(
    records: JobStore,
    metrics: dict[str, object] | None,
    sanitizer: dict[str, object] | None,
    verdict: Status,
    again: bool,
) -> None:
    assert records.create("first", EVALUATE, key=key("k"))
    claim = records.claim("w")
    body = report(verdict).body("first")
    body["kernel_exec_result"]["sanitizer"] = sanitizer
    body["kernel_exec_result"]["metadata"]["device_metrics"] = metrics
    assert claim is not None and records.complete("first", claim.attempt, body)
    assert asked(records) == ("first" if again else None)


@pytest.mark.parametrize("side", ["kernel_exec_result", "ref_result"])
@pytest.mark.parametrize(
    ("found", "again"),
    [
        ({"timing": {"stop_reason": Stop.TARGET_PRECISION, "flags": [{"code": "work_before_clock"}]}}, True),
        ({"timing": {"stop_reason": Stop.TIMEOUT, "flags": []}}, False),
        *(
            ({"timing": {"stop_reason": Stop.TARGET_PRECISION, "flags": [{"code": str(code)}]}}, False)
            for code in sorted(CUT_SHORT)
        ),
        ({"inputs": {"distributions": {"skipped": {"tiny": {"code": "distribution_time_limit"}}}}}, True),
        ({"inputs": {"distributions": {"skipped": {"tiny": {"code": "distribution_timeout"}}}}}, False),
    ],
)
def test_what_a_timeout_cut_short_is_not_given_to_who_allows_more(
    side: str, found: dict[str, object], again: bool
) -> None:
    body = {"ref_result": None, **report(Status.PASSED).body("first")}
    body[side] = {**(body[side] or {}), **found}
    assert reusable(body) is again


def test_only_while_it_is_kept_and_a_worker_lives_that_would_answer_alike(records: JobStore, redis: Redis) -> None:
    judged(records, "first")
    redis.delete("worker:w")
    assert asked(records) is None
    Heartbeat(redis, "v", H200, 1, {}).beat()
    assert asked(records) is None, "another device"
    Heartbeat(redis, "u", CPU, 1, {}).beat()
    assert asked(records) == "first", "another worker of the same kind"
    assert asked(records, replace(AGAIN, gpu="h200")) is None
    assert asked(records, replace(AGAIN, gpu="cpu")) == "first"
    redis.delete("job:first:result")
    assert asked(records) is None


@pytest.mark.parametrize("runtime_ms", [0.2, None])
def test_a_result_whose_cases_the_timeout_left_untimed_is_not_reused(runtime_ms: float | None) -> None:
    cases = [
        {"timed": True, "runtime_ms": 0.1},
        {"timed": True, "runtime_ms": runtime_ms},
        {"timed": False, "runtime_ms": None},
    ]
    assert reusable(report().body("id") | {"cases": cases}) == (runtime_ms is not None)
