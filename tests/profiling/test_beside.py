"""Slower beside a submission: told beyond noise, and not within it."""

from __future__ import annotations

import numpy as np
import pytest

from profiling.beside import at_most_ms, slowed_by, slowed_now_and_then, too_noisy


def test_what_took_twice_as_long_is_told() -> None:
    assert slowed_by([0.66] * 8, [0.33] * 4, "gated") == pytest.approx(2.0)
    assert slowed_by([40.0] * 8, [20.0] * 4, "host") == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    beside, alone = 0.33 + rng.normal(0, 0.005, 12), 0.33 + rng.normal(0, 0.005, 4)
    assert slowed_by(list(beside), list(alone), "gated") is None


def test_what_took_twice_as_long_now_and_then_is_told() -> None:
    beside = [3.0, 3.01, 6.0, 3.0, 6.0, 2.99, 6.01, 3.0, 3.0, 6.0] * 4
    assert slowed_by(beside, [3.0, 3.01, 2.99], "gated") == pytest.approx(1.4, rel=0.01)


def test_one_window_that_was_broken_into_is_no_evidence() -> None:
    assert slowed_by([0.33] * 11 + [5.0], [0.33] * 4, "gated") is None


def test_faster_beside_it_is_nothing() -> None:
    assert slowed_by([0.33] * 8, [0.66] * 4, "gated") is None


def test_nothing_is_known_from_one_window() -> None:
    assert slowed_by([0.66], [0.33] * 4, "gated") is None
    assert slowed_by([0.66] * 8, [], "gated") is None


def test_without_the_gate_an_honest_process_of_several_streams_makes_null_windows_a_little_longer() -> None:
    assert slowed_by([0.683, 0.687, 0.68, 0.69], [0.58, 0.597, 0.59], "streamed") is None
    assert slowed_by([0.883, 0.887, 0.88, 0.89], [0.58, 0.597, 0.59], "streamed") == pytest.approx(1.5, rel=0.01)


NOW_AND_THEN = [3.0, 9.0, 3.01, 2.99, 9.0, 3.0, 9.01, 3.0]
STEADY = [3.0, 3.01, 2.99] * 3


def test_who_slows_a_few_windows_by_much_does_not_hide_in_their_spread() -> None:
    assert slowed_by(NOW_AND_THEN, STEADY, "gated") is None
    assert slowed_by(NOW_AND_THEN, STEADY, "gated", own_ms=STEADY) == pytest.approx(1.75, rel=0.01)
    assert slowed_now_and_then(NOW_AND_THEN, STEADY, "gated", STEADY)


def test_what_disturbs_a_card_from_outside_is_in_the_submissions_own_windows_too() -> None:
    assert slowed_by(NOW_AND_THEN, STEADY, "gated", own_ms=NOW_AND_THEN[::-1]) is None
    assert slowed_by([2 * taken for taken in NOW_AND_THEN], [6.0] * 3, "gated", own_ms=NOW_AND_THEN[::-1]) is None


def test_what_is_slow_now_and_then_by_itself_is_so_alone() -> None:
    assert slowed_by(NOW_AND_THEN, NOW_AND_THEN[::-1], "gated", own_ms=STEADY) is None


def test_all_windows_twice_as_long_need_no_second_look() -> None:
    assert not slowed_now_and_then([6.0, 6.01, 5.99], STEADY, "gated", STEADY)
    assert slowed_by([6.0, 6.01, 5.99], STEADY, "gated", STEADY) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(("alone_ms", "noisy"), [([0.10, 0.101, 0.099], False), ([0.1, 0.1, 3.0], True)])
def test_windows_that_differ_by_more_than_is_looked_for_tell_nothing(alone_ms: list[float], noisy: bool) -> None:
    assert too_noisy(alone_ms, "gated") is noisy


def test_an_honest_window_takes_no_more_beside_another_process_than_its_kind_allows() -> None:
    assert at_most_ms([0.1, 0.1, 3.0], "gated") == pytest.approx(0.125)
    assert at_most_ms([0.1, 0.1, 3.0], "host") == pytest.approx(15.15)
