"""How often a job is judged, and what becomes of what it found each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.budget import Budget
from domain.device_metrics import CounterRequest
from domain.flags.codes import FlagCode
from domain.kernel import Kernel, KernelType
from domain.listing import Form
from domain.request import Request
from domain.result import Comparison, DeviceReport, Gradients, Outcome, Report, RuntimeStats, Speedup, Status, Timing
from tasks.evaluation import multi_process
from tasks.evaluation.multi_process import evaluate_in_processes
from tasks.runtime.stream_isolation import Queues, RestartJob
from tests.flag_codes import codes

KERNEL = Kernel("", KernelType.TORCH)
ALONE = Request(KERNEL, budget=Budget.PRECISE)
COMPARED = replace(ALONE, reference=KERNEL)
ROOFLINE = {"bytes": 1, "bytes_per_s": 900.0, "memory_share": 0.9, "flops_per_s": None, "arithmetic_share": None}
"""Of the first process, in which a call takes 1 ms."""
RIGHT = Comparison(True, 10, 10, 0.1, 0.2, 0.01, 0, 100, 0.01, 0.01)


def outcome(ms: float) -> Outcome:
    timing = Timing("gated_window", RuntimeStats(mean=ms), ms, 100, 6, 600, 0.02, "windows", "cold", relative_ci=0.001)
    return Outcome(Status.PASSED, "torch", True, timing=timing, comparison=RIGHT, roofline=ROOFLINE)


class Judge:
    """Whose processes take so many seconds of the device each; the candidate's times come one after the other."""

    def __init__(self, *times: float, seconds: float = 0.25) -> None:
        self.times = list(times)
        self.seconds = seconds
        self.built_s = 0.1
        self.build: dict[str, Any] = {"compile_cache": "miss", "deferred": None}
        self.asked: list[tuple[Request, Queues]] = []

    def __call__(self, request: Request, queues: Queues) -> Report:
        self.asked.append((request, queues))
        ms = self.times[len(self.asked) - 1]
        # Tools look in the first, which holds the device and is none of the job's time.
        held_s = queues.held_s + self.seconds + (50.0 if request.sanitize else 0.0)
        where = {"host": len(self.asked)}
        device = DeviceReport(held_s, 0.25, gpu_errors=[{"xid": len(self.asked)}])
        times: Any = {"spent_s": queues.spent_s + self.seconds, "built_s": self.built_s, "device": device}
        own = replace(outcome(ms), build=self.build)
        if request.reference is None:
            return Report(own, where, **times)
        faster = Speedup(2.0 + ms / 100, 1.9, 2.2, "faster")
        return Report(own, where, replace(outcome(2 * ms), build=self.build), faster, **times)


def test_precise_judges_a_kernel_in_twelve_processes_and_a_pair_in_four() -> None:
    alone, compared = Judge(*range(1, 13)), Judge(*range(1, 5))
    report = evaluate_in_processes(alone, ALONE)
    assert (report.device.held_s, report.environment["host"]) == (3.0, 1)
    assert report.device.windows_s == 3.0
    assert report.device.gpu_errors == [{"xid": number} for number in range(1, 13)]
    timing = report.outcome.timing
    assert timing is not None and timing.latency_ms == 6.5 and timing.per_process_ms == list(range(1, 13))
    assert report.outcome.roofline is not None and report.outcome.roofline["bytes_per_s"] == pytest.approx(900 / 6.5)
    report = evaluate_in_processes(compared, COMPARED)
    assert len(compared.asked) == 4 and report.reference is not None and report.reference.timing is not None
    assert report.reference.timing.latency_ms == 5.0
    assert report.speedup is not None and report.speedup.ratio == pytest.approx(2.025, rel=1e-3)
    comparison = report.outcome.comparison
    assert comparison is not None and (comparison.calls, comparison.element_count) == (40, 400)


@pytest.mark.parametrize(("seconds", "pairs"), [(0.47, 4), (0.48, 3), (3.0, 3)])
def test_a_comparison_that_holds_the_device_for_long_ends_with_its_third_pair(seconds: float, pairs: int) -> None:
    judge = Judge(*range(1, 5), seconds=seconds)
    report = evaluate_in_processes(judge, replace(COMPARED, timeout=600))
    assert len(judge.asked) == pairs
    for side in (report.outcome, report.reference):
        assert side is not None and side.timing is not None and len(side.timing.per_process_ms) == pairs
        assert (side.timing.stop_reason == "device_time") is (pairs < 4) and not side.timing.flags
    alone = Judge(*range(1, 13), seconds=seconds)
    evaluate_in_processes(alone, replace(ALONE, timeout=600))
    assert len(alone.asked) == 12


def test_a_speed_up_is_told_with_what_both_sides_took_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(multi_process, "pooled_speedup", lambda *each: told.append(each))
    evaluate_in_processes(Judge(1.0, 3.0, 2.0, 4.0), COMPARED)
    ((ratios, *timings),) = told
    assert [one.ratio for one in ratios] == [2.01, 2.03, 2.02, 2.04]
    assert [[one.latency_ms for one in side] for side in timings] == [[2.0, 6.0, 4.0, 8.0], [1.0, 3.0, 2.0, 4.0]]


def test_the_forward_passes_of_all_processes_are_pooled() -> None:
    class Differentiating(Judge):
        def __call__(self, request: Request, queues: Queues) -> Report:
            report = super().__call__(request, queues)
            assert report.reference is not None and report.speedup is not None
            sides = (report.outcome, report.reference)
            found = [Gradients(["output 0"], {}, 1.0, side.timing, report.speedup) for side in sides]
            own, other = (replace(side, gradients=one) for side, one in zip(sides, found, strict=True))
            return replace(report, outcome=own, reference=other)

    report = evaluate_in_processes(Differentiating(1.0, 2.0, 3.0, 4.0), replace(COMPARED, gradients=True))
    gradients = report.outcome.gradients
    assert gradients is not None and gradients.forward is not None and gradients.forward_speedup is not None
    assert gradients.forward.per_process_ms == [1.0, 2.0, 3.0, 4.0]
    assert gradients.forward_speedup.ratio == pytest.approx(2.025, rel=1e-3)


@pytest.mark.parametrize(
    "request_",
    [replace(ALONE, budget=Budget.DEFAULT), replace(ALONE, budget=Budget.QUICK), replace(COMPARED, replay_seed="ab")],
)
def test_other_jobs_have_one(request_: Request) -> None:
    judge = Judge(1.0)
    report = evaluate_in_processes(judge, request_)
    assert len(judge.asked) == 1 and report.outcome.timing == outcome(1.0).timing


def test_what_is_asked_for_beside_the_time_is_done_once_and_the_time_spent_is_counted() -> None:
    asked = replace(ALONE, profile=True, artifacts=(Form.PTX,), device_metrics=CounterRequest(), sanitize=True)
    judge = Judge(*[1.0] * 12)
    evaluate_in_processes(judge, asked)
    requests = [request for request, _ in judge.asked]
    assert requests[0] == asked and [replace(one, tried=False) for one in requests[1:]] == [ALONE] * 11
    queues = [one for _, one in judge.asked]
    assert [one.spent_s for one in queues] == [0.25 * n for n in range(12)]
    assert [one.held_s for one in queues] == [0.0] + [50.0 + 0.25 * n for n in range(1, 12)]
    assert not queues[0].final and all(one.final for one in queues[1:])


def test_answers_are_tried_otherwise_in_the_first_process_and_in_one_that_is_drawn() -> None:
    drawn = set()
    for _ in range(100):
        judge = Judge(*[1.0] * 4)
        evaluate_in_processes(judge, COMPARED)
        first, *others = [not request.tried for request, _ in judge.asked]
        assert first and others.count(True) == 1
        drawn.add(others.index(True))
    assert drawn == {0, 1}, "the fourth may be left out"


def test_streams_that_were_found_apart_stay_so() -> None:
    apart = Queues(frozenset(("candidate",)))

    class Learning(Judge):
        def __call__(self, request: Request, queues: Queues) -> Report:
            if not queues.multi_queue_roles:
                raise RestartJob(apart)
            return super().__call__(request, queues)

    judge = Learning(*[1.0] * 4)
    evaluate_in_processes(judge, COMPARED)
    assert [one.multi_queue_roles for _, one in judge.asked] == [apart.multi_queue_roles] * 4


def test_a_kernel_that_is_wrong_in_one_process_is_wrong() -> None:
    class Wrong(Judge):
        def __call__(self, request: Request, queues: Queues) -> Report:
            report = super().__call__(request, queues)
            if len(self.asked) < 3:
                return report
            found = replace(report.outcome, status=Status.WRONG_RESULT, message="off by one", timing=None)
            return replace(report, outcome=found, speedup=None)

    judge = Wrong(*[1.0] * 4)
    report = evaluate_in_processes(judge, COMPARED)
    assert len(judge.asked) == 3
    assert (report.outcome.status, report.outcome.timing, report.speedup) == (Status.WRONG_RESULT, None, None)
    assert report.outcome.message == "off by one (in the 2 processes before this one it passed)"
    assert report.device.held_s == 0.75


def test_a_kernel_that_fails_is_not_judged_again() -> None:
    class Failing(Judge):
        def __call__(self, request: Request, queues: Queues) -> Report:
            super().__call__(request, queues)
            return Report(Outcome(Status.COMPILE_ERROR, "torch", message="no"), {"device_seconds": 0.0})

    judge = Failing(1.0)
    assert evaluate_in_processes(judge, ALONE).outcome.message == "no"
    assert len(judge.asked) == 1


def test_where_the_timeout_is_near_there_are_fewer_and_it_says_so() -> None:
    judge = Judge(*[1.0] * 12, seconds=4.0)
    report = evaluate_in_processes(judge, replace(ALONE, timeout=22))
    assert len(judge.asked) == 3  # After two 14 s are left, and 13 are wanted; after three there are 10.
    timing: Any = report.outcome.timing
    assert FlagCode.FEWER_PROCESSES in codes(timing.flags)


@pytest.mark.parametrize(
    ("build", "built_s", "judged"),
    [
        ({"compile_cache": "miss", "deferred": None}, 50.0, 2),
        ({"compile_cache": "off", "deferred": None}, 50.0, 1),
        ({"compile_cache": "off", "deferred": None}, 10.0, 4),
        ({"compile_cache": "miss", "deferred": "needs a GPU"}, 50.0, 1),
        ({"compile_cache": "hit", "deferred": None}, 0.1, 12),
    ],
    ids=["kept, but built again", "not kept", "built quickly", "built under the lease", "kept"],
)
def test_builds_that_are_not_kept_are_made_again_as_long_as_there_is_time(
    build: dict[str, Any], built_s: float, judged: int
) -> None:
    judge = Judge(*[1.0] * 12)
    judge.build, judge.built_s = build, built_s
    evaluate_in_processes(judge, replace(ALONE, build_timeout=60))
    assert len(judge.asked) == judged
