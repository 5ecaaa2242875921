"""A job's one deadline: what earlier attempts spent, and what it waited for others."""

from __future__ import annotations

import time

import pytest

from tasks.runtime.time_budget import TimeBudget


def left_s(budget: TimeBudget) -> float:
    return budget.deadline - time.monotonic()


def test_earlier_attempts_count_and_waiting_for_other_jobs_does_not() -> None:
    budget = TimeBudget(100.0, spent_s=40.0)
    assert left_s(budget) == pytest.approx(60.0, abs=5.0)
    budget.extend(30.0)
    budget.extend(10.0)
    assert left_s(budget) == pytest.approx(100.0, abs=5.0)
    assert (budget.spent_s, budget.waited_s) == (40.0, 40.0)


def test_its_time_begins_when_the_kernels_are_loaded() -> None:
    budget = TimeBudget(100.0)
    before = budget.deadline
    budget.start()
    assert budget.deadline > before


def test_what_fits_ends_before_the_deadline() -> None:
    budget = TimeBudget(100.0)
    assert budget.fits(90.0) and not budget.fits(100.0)
    assert budget.within(1000.0) == budget.deadline
    assert budget.within(10.0) == pytest.approx(time.monotonic() + 10.0, abs=5.0)
