"""Flags: evidence in one sentence where something is wrong, nothing for honest noise."""

import math

import pytest

from profiling.gpu.monitor import CardProcess
from profiling.gpu.state_summary import CardState
from profiling.stats.flags import Misfit, duration, events_misfit, others_on_the_card, windows_taken_again


def test_windows_that_fit_have_no_flag():
    assert events_misfit([], 20) is None


def test_a_misfit_names_the_worst_window_in_numbers():
    told = events_misfit([Misfit(10.0, 8.0), Misfit(10.0, 0.2), Misfit(10.0, 15.0)], 20)
    assert told is not None and "3 of 20" in told and "200 µs" in told and "10 ms" in told


@pytest.mark.parametrize("claim", [0.0, -1.0, math.nan, math.inf])
def test_a_claim_that_is_no_time_is_the_worst(claim):
    told = events_misfit([Misfit(10.0, 1e-6), Misfit(7.0, claim)], 5)
    assert told is not None and "no usable time" in told and "7 ms" in told


def test_windows_taken_again_are_told_with_their_reason():
    assert windows_taken_again([], [], 20) == []
    (again,) = windows_taken_again(["too hot"], [], 20)
    assert again == "1 window was taken again because too hot"
    again, kept = windows_taken_again(["brake", "hot", "hot"], ["brake"], 20)
    assert "3 windows were" in again and "hot" in again
    assert "1 of 20" in kept and "brake" in kept


def test_strangers_are_named_and_unknown_or_none_is_silent():
    assert others_on_the_card(CardState()) is None
    assert others_on_the_card(CardState(other_processes=[])) is None
    told = others_on_the_card(CardState(other_processes=[CardProcess(99, 512 << 20)]))
    assert told is not None and "pid 99 with 512 MiB" in told
    told = others_on_the_card(CardState(other_processes=[CardProcess(pid, None) for pid in range(6)]))
    assert told is not None and "6 processes" in told and "and 2 more" in told


@pytest.mark.parametrize(
    ("ms", "text"), [(0.0, "0 µs"), (0.00123, "1.23 µs"), (0.5, "500 µs"), (1.5, "1.5 ms"), (2500.0, "2.5 s")]
)
def test_durations_read_well(ms, text):
    assert duration(ms) == text
