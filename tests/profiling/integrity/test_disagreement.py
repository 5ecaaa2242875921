"""Windows of another kind that take longer give the time; honest noise does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from domain.flags.codes import FlagCode
from profiling.integrity.disagreement import DRIFT_MS, Estimate, Measured, middle, reconcile
from profiling.integrity.single_call import SINGLE_CALL
from profiling.stats.flags import duration
from profiling.stats.statistics import standard_error


def single_call(usual: Measured, other: Measured) -> Estimate:
    return reconcile(usual, other, DRIFT_MS, SINGLE_CALL)


def test_honest_noise_leaves_the_windows_time():
    rng = np.random.default_rng(3)
    for true_ms in (0.002, 0.02, 0.3, 5.0, 80.0):
        for _ in range(500):
            # Single calls of 20 rounds: 2 µs of noise each and up to 3 µs of drift; windows of 1 % noise over 10.
            single = true_ms + rng.normal(0, 0.002 / math.sqrt(20)) + rng.uniform(-0.003, 0.003)
            window = true_ms * (1 + rng.normal(0, 0.01 / math.sqrt(10)))
            found = single_call(
                Measured(window, true_ms * 0.01 / math.sqrt(10)), Measured(single, 0.002 / math.sqrt(20))
            )
            assert found.flag is None and found.time_ms == window


@pytest.mark.parametrize("true_ms", [0.1, 0.5, 2.0])
def test_a_batch_over_all_calls_gets_the_single_calls_time(true_ms):
    found = single_call(Measured(true_ms / 10, 1e-5), Measured(true_ms, 0.0005))
    assert found.time_ms == true_ms
    assert found.flag is not None and found.flag.code is FlagCode.SINGLE_CALL_SLOWER
    assert duration(true_ms) in found.flag.message and duration(true_ms / 10) in found.flag.message
    assert (found.flag.data["longer_ms"], found.flag.data["window_call_ms"]) == (true_ms, true_ms / 10)


def test_what_a_batch_can_gain_unseen_is_within_five_percent_and_the_drift_between_processes():
    for true_ms in (0.004, 0.05, 1.0, 20.0):
        gained = max(
            true_ms - found.time_ms
            for share in np.linspace(0, 1, 201)
            if (found := single_call(Measured(true_ms * share, 1e-6), Measured(true_ms, 1e-6))).flag is None
        )
        assert gained <= 0.05 * true_ms + DRIFT_MS


def test_where_a_call_takes_one_time_or_another_more_of_one_kind_by_chance_are_no_evidence():
    rng, told, rounds = np.random.default_rng(5), 0, 1000
    for _ in range(rounds):
        # By where its memory lies: 545 µs, and in two windows of five 60 µs more.
        usual, single = (rng.normal(0.545, 0.005, n) + 0.06 * (rng.random(n) < 0.4) for n in (24, 24))
        level = Measured(float(usual.mean()), standard_error(usual))
        for taken in range(4, 25):
            found = single_call(level, middle(single[:taken]))
            if not found.unsure:
                break
        told += found.flag is not None
    assert told <= 0.005 * rounds
    late = single_call(level, middle(single + 0.1))
    assert late.flag is not None and not late.unsure


def test_a_few_windows_that_are_longer_want_more_of_them_and_count_where_there_are_none():
    few, many = (single_call(Measured(0.1, 1e-4), middle(np.linspace(0.29, 0.31, n))) for n in (4, 12))
    assert few.flag is not None and many.flag is not None and few.time_ms == many.time_ms == pytest.approx(0.3)
    assert few.unsure and not many.unsure


def test_windows_slower_than_single_calls_stay_the_time():
    assert single_call(Measured(1.0, 0.001), Measured(0.5, 0.001)).time_ms == 1.0


def test_nan_flags_nothing():
    assert single_call(Measured(1.0, math.nan), Measured(math.nan, 0.0)).flag is None
