"""A runner's word is never the time."""

import math

import pytest
import torch

from profiling.calibration import Overhead
from profiling.plan import MAX_CALLS_IN_PLACE, MAX_CALLS_RETURNED, MIN_WINDOWS, plan
from profiling.record import TimeRecord
from profiling.window import Window


def record(*windows: tuple[float, list[float]], calls: int = 2) -> TimeRecord:
    made = TimeRecord(calls=calls, overhead=Overhead(0.16, 0.004), is_cuda=True, gated=True)
    for elapsed, call_ms in windows:
        made.add(Window(elapsed, call_ms, torch.empty(0), False))
    return made


def test_events_that_fit_give_the_distribution_and_the_window_the_level():
    timing = record((10.16, [4.0, 5.5])).timing("cold")
    assert timing.stats.mean == pytest.approx(5.0)
    assert timing.trusted_ms == pytest.approx(5.0)
    assert timing.stats.max / timing.stats.min == pytest.approx(5.5 / 4.0)
    assert (timing.distribution, timing.flags) == ("events", [])
    assert timing.resolution_us == pytest.approx(2.0)


@pytest.mark.parametrize("lie", [[0.001, 0.001], [100.0, 100.0], [5.0], [], [math.nan, 5.0], [-1.0, 11.0], [0.0, 0.0]])
def test_events_that_do_not_fit_are_not_believed_and_it_is_said(lie):
    timing = record((10.16, lie)).timing("cold")
    assert timing.trusted_ms == pytest.approx(5.0)
    assert timing.stats.mean == timing.stats.min == timing.stats.max == pytest.approx(5.0)
    assert timing.distribution == "windows"
    assert len(timing.flags) == 1 and "do not fit" in timing.flags[0]


def test_a_window_under_the_overhead_is_zero_not_negative():
    assert record((0.1, [0.0, 0.0])).timing("cold").trusted_ms == 0.0


def test_a_window_is_filled_and_the_queue_is_not_overrun():
    common = {"num_trials": 100, "bytes_per_call": 1024, "memory": 1 << 30, "is_cuda": True}
    assert plan([0.004], returned=False, **common).calls == MAX_CALLS_IN_PLACE
    assert plan([0.004], returned=True, **common).calls == MAX_CALLS_RETURNED
    assert plan([1.0], returned=True, **common).calls == 4
    assert plan([50.0], returned=True, **common) == plan([50.0, 0.001 + 50], returned=True, **common)


def test_at_least_the_trials_asked_for_in_at_least_five_windows():
    made = plan([50.0], num_trials=30, bytes_per_call=1, memory=1 << 30, returned=False, is_cuda=True)
    assert (made.calls, made.windows) == (1, 30)
    assert (
        plan([0.01], num_trials=1, bytes_per_call=1, memory=1 << 30, returned=False, is_cuda=True).windows
        == MIN_WINDOWS
    )


def test_memory_and_the_slowest_contender_bound_a_window():
    assert (
        plan([0.001], num_trials=1, bytes_per_call=1 << 20, memory=10 << 20, returned=False, is_cuda=True).calls == 10
    )
    assert plan([0.001, 20.0], num_trials=1, bytes_per_call=1, memory=1 << 30, returned=False, is_cuda=True).calls == 5


def test_a_contender_that_claims_no_time_or_all_time_still_gets_a_plan():
    assert (
        plan([0.0], num_trials=1, bytes_per_call=1, memory=1 << 30, returned=False, is_cuda=True).calls
        == MAX_CALLS_IN_PLACE
    )
    assert plan([1e12], num_trials=1, bytes_per_call=1, memory=1 << 30, returned=False, is_cuda=True).calls == 1
