"""Flags: evidence in one sentence where something is wrong, nothing for honest noise."""

import math

import numpy as np
import pytest

from profiling.card import CardProcess
from profiling.card_state import CardState
from profiling.flags import DRIFT_MS, Misfit, believed, duration, events_misfit, others_on_the_card, throttled_windows


def test_windows_that_fit_have_no_flag():
    assert events_misfit([], 20) is None


def test_a_misfit_names_the_worst_window_in_numbers():
    told = events_misfit([Misfit(10.0, 8.0), Misfit(10.0, 0.2), Misfit(10.0, 15.0)], 20)
    assert told is not None and "3 of 20" in told and "200 µs" in told and "10 ms" in told


@pytest.mark.parametrize("claim", [0.0, -1.0, math.nan, math.inf])
def test_a_claim_that_is_no_time_is_the_worst(claim):
    told = events_misfit([Misfit(10.0, 1e-6), Misfit(7.0, claim)], 5)
    assert told is not None and "no usable time" in told and "7 ms" in told


def test_honest_noise_leaves_the_windows_time():
    rng = np.random.default_rng(3)
    for true_ms in (0.002, 0.02, 0.3, 5.0, 80.0):
        for _ in range(500):
            # Single calls of 20 rounds: 2 µs of noise each and up to 3 µs of drift; windows of 1 % noise over 10.
            single = true_ms + rng.normal(0, 0.002 / math.sqrt(20)) + rng.uniform(-0.003, 0.003)
            window = true_ms * (1 + rng.normal(0, 0.01 / math.sqrt(10)))
            found = believed(window, true_ms * 0.01 / math.sqrt(10), single, 0.002 / math.sqrt(20))
            assert found.flag is None and found.time_ms == window


@pytest.mark.parametrize("true_ms", [0.1, 0.5, 2.0])
def test_a_batch_over_all_calls_gets_the_single_calls_time(true_ms):
    found = believed(true_ms / 10, 1e-5, true_ms, 0.0005)
    assert found.time_ms == true_ms
    assert found.flag is not None and duration(true_ms) in found.flag and duration(true_ms / 10) in found.flag


def test_what_a_batch_can_gain_unseen_is_within_five_percent_and_the_drift_between_processes():
    for true_ms in (0.004, 0.05, 1.0, 20.0):
        gained = max(
            true_ms - found.time_ms
            for share in np.linspace(0, 1, 201)
            if (found := believed(true_ms * share, 1e-6, true_ms, 1e-6)).flag is None
        )
        assert gained <= 0.05 * true_ms + DRIFT_MS


def test_windows_slower_than_single_calls_stay_the_time():
    assert believed(1.0, 0.001, 0.5, 0.001).time_ms == 1.0


def test_nan_flags_nothing():
    assert believed(1.0, math.nan, math.nan, 0.0).flag is None


def test_throttled_windows_are_told_with_their_reason():
    assert throttled_windows([], [], 20) == []
    (again,) = throttled_windows(["too hot"], [], 20)
    assert again == "1 window was taken again because too hot"
    again, kept = throttled_windows(["brake", "hot", "hot"], ["brake"], 20)
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
