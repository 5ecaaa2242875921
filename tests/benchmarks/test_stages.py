"""Where a job's time goes, out of its timeline."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scaling import numbers
from benchmarks.stages import (
    by_stage,
    computing_seconds,
    device_budgets,
    device_seconds,
    seconds_by_stage,
    table,
    window_seconds,
)
from domain.job import Stage


def ended(*steps: tuple[str, float], device_s: float | None = None) -> dict[str, Any]:
    result = None if device_s is None else {"environment": {"device_seconds": device_s}}
    return {"timeline": [{"stage": stage, "at": at, "attempt": 1} for stage, at in steps], "result": result}


ONCE = ended(("queued", 10.0), ("build", 10.5), ("time", 11.5), ("done", 14.0), device_s=2.25)
TWICE = ended(("queued", 0.0), ("build", 1.0), ("queued", 2.0), ("build", 2.5), ("done", 6.0))


def test_a_stage_lasts_until_the_next_one_and_all_attempts_count() -> None:
    assert seconds_by_stage(ONCE) == {Stage.QUEUED: 0.5, Stage.BUILD: 1.0, Stage.TIME: 2.5}
    assert seconds_by_stage(TWICE) == {Stage.QUEUED: 1.5, Stage.BUILD: 4.5}


def test_each_stage_is_of_the_jobs_that_entered_it() -> None:
    stages = by_stage([TWICE, ONCE])
    assert list(stages) == [Stage.QUEUED, Stage.BUILD, Stage.TIME]
    assert (stages[Stage.BUILD].count, stages[Stage.TIME].count) == (2, 1)
    assert stages[Stage.BUILD].mean == pytest.approx(2750.0)


def test_the_windows_that_gave_times_are_those_of_both_sides() -> None:
    timings = {"kernel_exec_result": {"timing": {"calls": 100, "latency_ms": 0.5}}, "ref_result": {"timing": None}}
    assert computing_seconds({"result": timings}) == pytest.approx(0.05)
    both = timings | {"ref_result": timings["kernel_exec_result"]}
    assert computing_seconds({"result": both}) == pytest.approx(0.1)
    assert computing_seconds(ONCE) == 0.0
    assert window_seconds({"result": {"environment": {"window_seconds": 0.5}}}) == 0.5
    assert window_seconds(ONCE) == 0.0


def test_what_held_no_device_held_it_for_no_time() -> None:
    assert [device_seconds(job) for job in (ONCE, TWICE)] == [2.25, 0.0]


def test_the_budget_of_a_kernel_type_is_what_its_jobs_held_the_device_for_beyond_their_windows() -> None:
    timed = ended(("load", 0.0), ("validate", 0.25), ("time", 1.0), ("done", 2.0), device_s=2.0)
    timed["result"]["environment"] |= {"window_seconds": 0.5, "reference_runner": "warm"}
    jobs = [{"kernel_type": "cuda", **timed}, {"kernel_type": "cuda", **ONCE}, {"kernel_type": "triton", **TWICE}]
    (budget,) = device_budgets(jobs).values()
    assert (budget.jobs, budget.warm, budget.held) == (2, 1, pytest.approx(2125.0))
    assert budget.beyond_windows == pytest.approx((1500.0 + 2250.0) / 2)
    assert budget.stages == {Stage.LOAD: 250.0, Stage.VALIDATE: 750.0, Stage.TIME: pytest.approx(1750.0)}
    assert table(device_budgets(jobs)).row_count == 1


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_numbers_are_doubled_up_to_all(most: int, expected: list[int]) -> None:
    assert numbers(most) == expected
