"""A runner's word is never the time."""

import math

import pytest
import torch

from profiling.plan import MAX_CALLS_IN_PLACE, MAX_CALLS_RETURNED, MIN_WINDOWS, plan
from profiling.record import TimeRecord, paired_speedup
from profiling.window import Window

NULL_MS = [0.158, 0.160, 0.162]


def record(*elapsed_ms: float, marked: tuple[float, list[float]] | None = None, calls: int = 2) -> TimeRecord:
    """Windows of that many calls beside null windows of about 0.16 ms."""
    made = TimeRecord(calls, is_cuda=True, gated=True)
    if marked is not None:
        made.add(Window(marked[0], marked[1], torch.empty(0), False), 0.160, warm_up=True)
    for index, elapsed in enumerate(elapsed_ms):
        made.add(Window(elapsed, [], torch.empty(0), False), NULL_MS[index % 3], warm_up=False)
    return made


def test_events_that_fit_give_the_distribution_and_the_window_the_level() -> None:
    timing = record(10.16, 10.16, 10.16, marked=(9.7, [4.0, 5.5])).timing("cold")
    assert timing.trusted_ms == pytest.approx(5.0)
    assert timing.stats.mean == pytest.approx(5.0)
    assert timing.stats.max / timing.stats.min == pytest.approx(5.5 / 4.0)
    assert (timing.distribution, timing.flags, timing.windows, timing.calls) == ("events", [], 3, 6)
    assert timing.resolution_us == pytest.approx(2.0)


@pytest.mark.parametrize("lie", [[0.001, 0.001], [100.0, 100.0], [5.0], [math.nan, 5.0], [-1.0, 11.0], [0.0, 0.0]])
def test_events_that_do_not_fit_are_not_believed_and_it_is_said(lie: list[float]) -> None:
    timing = record(10.16, 10.16, marked=(10.16, lie)).timing("cold")
    assert timing.trusted_ms == pytest.approx(5.0)
    assert timing.stats.mean == timing.stats.min == timing.stats.max == pytest.approx(5.0)
    assert timing.distribution == "windows"
    assert len(timing.flags) == 1 and "do not fit" in timing.flags[0]


def test_a_window_under_the_overhead_is_zero_not_negative() -> None:
    assert record(0.1).timing("cold").trusted_ms == 0.0


def test_a_window_that_was_broken_into_is_left_out_and_it_is_said() -> None:
    timing = record(10.16, 10.17, 10.15, 10.16, 10.18, 30.0).timing("cold")
    assert timing.stats.mean == pytest.approx(5.0, rel=0.01)
    assert timing.windows == 5 and "1 of 6" in timing.flags[0]


def test_pairs_that_were_broken_into_do_not_count() -> None:
    reference = record(10.16, 10.16, 30.0, 10.16, 10.16, 10.16)
    candidate = record(5.16, 5.16, 5.16, 5.16, 5.16, 40.0)
    found = paired_speedup(reference, candidate)
    assert found is not None and found.ratio == pytest.approx(2.0, rel=0.01) and found.verdict == "faster"


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
