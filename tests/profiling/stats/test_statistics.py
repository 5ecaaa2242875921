"""Figures of samples, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from profiling.stats.statistics import runtime_stats, speedup


def test_stats_of_a_known_sample():
    stats = runtime_stats([1.0, 2.0, 3.0, 4.0])
    assert stats.mean == 2.5
    assert stats.std == pytest.approx(1.2909944)
    assert (stats.min, stats.max, stats.median) == (1.0, 4.0, 2.5)
    assert stats.percentile_95 == pytest.approx(3.85)
    assert stats.percentile_99 == pytest.approx(3.97)


def test_one_sample_has_no_spread():
    assert runtime_stats([3.0]).std == 0.0


def test_times_are_not_rounded():
    assert runtime_stats([0.0012345678]).mean == 0.0012345678


def test_a_clear_difference_is_told_and_its_inverse_is_the_inverse():
    rng = np.random.default_rng(1)
    slow, fast = list(2 + rng.normal(0, 0.01, 20)), list(1 + rng.normal(0, 0.01, 20))
    found, inverse = speedup(slow, fast), speedup(fast, slow)
    assert found is not None and inverse is not None
    assert found.verdict == "faster" and inverse.verdict == "slower"
    assert found.ci_low < 2 < found.ci_high
    assert found.ratio == pytest.approx(1 / inverse.ratio)


@pytest.mark.parametrize("pairs", [3, 6, 20])
def test_the_interval_covers_the_truth_as_often_as_it_says(pairs: int):
    rng = np.random.default_rng(2)
    distinguished = 0
    for _ in range(600):
        found = speedup(1 + rng.normal(0, 0.02, pairs), 1 + rng.normal(0, 0.02, pairs))
        assert found is not None
        distinguished += found.verdict != "not_distinguishable"
    assert distinguished <= 0.05 * 600


def test_too_few_pairs_give_no_verdict_and_no_interval():
    for pairs in (1, 2):
        found = speedup([2.0] * pairs, [1.0] * pairs)
        assert found is not None and found.verdict == "not_distinguishable"
        assert (found.ratio, found.ci_low, found.ci_high) == (2.0, 0.0, math.inf)


def test_a_reference_that_is_not_clear_of_zero_gives_no_ratio():
    assert speedup([0.1, -0.1, 0.05], [0.4, 0.4, 0.4]) is None
    assert speedup([0.0], [1.0]) is None
    assert speedup([], []) is None


def test_a_reference_too_short_to_be_measured_beside_a_candidate_that_is_longer_for_sure():
    found = speedup([0.1, -0.1, 0.05], [100.0, 100.0, 101.0])
    assert found is not None and (found.verdict, found.ci_low) == ("slower", 0.0)
    assert 0 < found.ratio == found.ci_high < 0.01


def test_a_candidate_too_short_to_be_measured_is_at_least_so_much_faster():
    found = speedup([10.0, 10.1, 9.9, 10.0], [0.1, -0.1, 0.05, -0.02])
    assert found is not None and found.verdict == "faster"
    assert found.ci_high == math.inf and 10 < found.ci_low == found.ratio < 200


def test_the_bound_of_a_short_candidate_is_one_however_little_it_is_short_of_clear():
    candidate = np.asarray([0.01, 0.05, 0.02, 0.06, 0.001, 0.03])
    found = speedup([10.0] * 6, candidate)
    assert found is not None and (math.isfinite(found.ci_high) or found.ci_low < 10.0 / candidate.mean() / 1.5)


def test_what_differs_between_processes_is_in_the_bound_of_a_short_candidate_too():
    short = [0.001, -0.001, 0.0005, -0.0002, 0.0001, 0.0003]
    alone, apart = speedup([3.0] * 6, short), speedup([3.0] * 6, short, process_spread_ms=(0.005, 0.005))
    assert alone is not None and apart is not None
    assert apart.ci_low < 3.0 / 0.0098 < alone.ci_low


def test_a_candidate_that_only_noise_tells_from_another_process_is_not_told_to_be_finite():
    rng = np.random.default_rng(4)
    found = speedup([3.0] * 20, 0.004 + rng.normal(0, 0.0005, 20), process_spread_ms=(0.005, 0.005))
    assert found is not None and found.ci_high == math.inf


def test_one_window_below_zero_is_noise_not_the_end():
    assert speedup([1.0, 1.1, 0.9, 1.0, 1.0, 1.0], [0.3, 0.4, -0.001, 0.35, 0.3, 0.4]) is not None


def test_what_differs_between_processes_widens_the_interval_and_can_undo_a_verdict():
    rng = np.random.default_rng(3)
    slow, fast = list(1.01 + rng.normal(0, 0.002, 20)), list(1 + rng.normal(0, 0.002, 20))
    alone, widened = speedup(slow, fast), speedup(slow, fast, process_spread_ms=(0.0071, 0.0071))
    assert alone is not None and widened is not None
    assert alone.verdict == "faster" and widened.verdict == "not_distinguishable"
    assert widened.ci_low < alone.ci_low < alone.ratio == widened.ratio < alone.ci_high < widened.ci_high
    assert widened.ci_high / widened.ratio > 1.0196
