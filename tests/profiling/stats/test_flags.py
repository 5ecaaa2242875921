"""Flags: evidence in one sentence where something is wrong, nothing for honest noise."""

import math

import pytest

from domain.flags.codes import FlagCode
from profiling.gpu.monitor import CardProcess
from profiling.gpu.state_summary import CardState
from profiling.stats.flags import Misfit, duration, events_misfit, others_on_the_card, retaken_windows


def test_windows_that_fit_have_no_flag():
    assert events_misfit([], 20) is None


def test_a_misfit_names_the_worst_window_in_numbers():
    told = events_misfit([Misfit(10.0, 8.0), Misfit(10.0, 0.2), Misfit(10.0, 15.0)], 20)
    assert told is not None and told.code is FlagCode.EVENTS_MISMATCH
    assert "3 of 20" in told.message and "200 µs" in told.message and "10 ms" in told.message
    assert told.data == {"mismatched_windows": 3, "windows": 20, "worst_events_ms": 0.2, "worst_window_ms": 10.0}


@pytest.mark.parametrize("claim", [0.0, -1.0, math.nan, math.inf])
def test_a_claim_that_is_no_time_is_the_worst(claim):
    told = events_misfit([Misfit(10.0, 1e-6), Misfit(7.0, claim)], 5)
    assert told is not None and "no usable time" in told.message and told.data["worst_window_ms"] == 7.0
    assert told.data["worst_events_ms"] == (claim if math.isfinite(claim) else None), "JSON has no other numbers"


def test_windows_taken_again_are_told_with_their_reason():
    assert retaken_windows([], [], 20) == []
    (again,) = retaken_windows(["too hot"], [], 20)
    assert again.code is FlagCode.WINDOWS_RETAKEN and again.message == "1 window was taken again because too hot"
    again, kept = retaken_windows(["brake", "hot", "hot"], ["brake"], 20)
    assert again.data == {"retaken_windows": 3, "reason": "hot"}
    assert kept.code is FlagCode.WINDOWS_THROTTLED
    assert kept.data == {"throttled_windows": 1, "windows": 20, "reason": "brake"}


def test_strangers_are_named_and_unknown_or_none_is_silent():
    assert others_on_the_card(CardState()) is None
    assert others_on_the_card(CardState(other_processes=[])) is None
    told = others_on_the_card(CardState(other_processes=[CardProcess(99, 512 << 20)]))
    assert told is not None and told.code is FlagCode.OTHER_GPU_PROCESSES and "pid 99 with 512 MiB" in told.message
    assert told.data == {"other_processes": 1, "memory_bytes": 512 << 20}
    told = others_on_the_card(CardState(other_processes=[CardProcess(pid, None) for pid in range(6)]))
    assert told is not None and told.data["other_processes"] == 6 and "and 2 more" in told.message


@pytest.mark.parametrize(
    ("ms", "text"), [(0.0, "0 µs"), (0.00123, "1.23 µs"), (0.5, "500 µs"), (1.5, "1.5 ms"), (2500.0, "2.5 s")]
)
def test_durations_read_well(ms, text):
    assert duration(ms) == text
