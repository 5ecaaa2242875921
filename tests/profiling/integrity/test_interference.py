"""Slower beside a submission: told beyond noise, and not within it."""

from __future__ import annotations

import numpy as np
import pytest

from profiling.integrity.interference import (
    FLOOR_MS,
    host_sets_pace,
    max_null_ms,
    slow_rounds,
    slowed_by,
    unsure,
)

FLOOR = FLOOR_MS["gated"]


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


NOW_AND_THEN = [3.0, 9.0, 3.01, 9.0, 2.99, 9.0, 3.0, 9.01, 3.0]
STEADY = [3.0, 3.01, 2.99] * 4


def test_who_slows_some_windows_by_much_does_not_hide_in_their_spread() -> None:
    for slowed in range(4, 7):
        windows = [3.0 + 3.0 * (place < slowed) for place in range(6)]
        told = slowed_by(windows, STEADY, "gated", own_ms=STEADY[:6])
        assert told is not None and told > 0.99 + slowed / 6
    assert slowed_by(NOW_AND_THEN * 2, STEADY, "gated", own_ms=STEADY) == pytest.approx(5.67 / 3, rel=0.01)


def test_what_disturbs_a_card_from_outside_is_in_the_submissions_own_windows_too() -> None:
    assert slowed_by(NOW_AND_THEN, STEADY, "gated", own_ms=NOW_AND_THEN[::-1]) is None


def test_what_is_slow_now_and_then_by_itself_is_so_alone() -> None:
    assert slowed_by(NOW_AND_THEN, NOW_AND_THEN[::-1], "gated", own_ms=STEADY) is None


@pytest.mark.parametrize("once", [False, True])
def test_more_windows_are_shot_alone_where_they_may_tell_more(once: bool) -> None:
    told = [6.0, 6.01, 5.99]
    assert unsure(told, STEADY, "gated", STEADY, once=once) is once
    assert not unsure([3.0] * 7 + [9.0], STEADY, "gated", STEADY, once=once), "one of eight is chance"
    assert unsure([3.0] * 5 + [9.0] * 3, STEADY[:3], "gated", STEADY[:8], once=once)
    assert unsure([0.1] * 8, [0.1, 0.1, 3.0], "gated", STEADY[:8], once=once), "nothing can be told from those"
    assert not unsure([0.1] * 8, [0.1, 0.101, 0.099], "gated", STEADY[:8], once=once)


def test_max_null_ms_adds_noise_to_the_isolated_time() -> None:
    assert max_null_ms([0.1, 0.1, 3.0], "gated", 2.0) == pytest.approx(0.1 + FLOOR)
    assert max_null_ms([4.0] * 3, "gated", 2.0) == pytest.approx(4.1), "a twentieth of what it is subtracted from"


def test_slow_rounds_are_longer_than_any_isolated_window() -> None:
    assert slow_rounds([3.0, 4.1, 3.2, 3.1], [3.0] * 3, "gated") == [1]
    assert slow_rounds([3.0, 4.1, 3.0, 4.0], [3.0, 4.0, 3.0], "gated") == []


def test_what_makes_null_windows_a_little_longer_is_lost_in_the_noise_of_longer_ones() -> None:
    own = [3.0, 3.03, 2.97, 3.04, 3.0, 2.98, 3.03, 3.02]
    assert slowed_by([0.1, 0.14, 0.14, 0.1, 0.14, 0.14, 0.1, 0.14], [0.1] * 12, "gated", own) is None
    assert slowed_by([0.1, 4.0, 4.0, 0.1, 4.0, 4.0, 0.1, 4.0], [0.1] * 12, "gated", own) is not None


def test_what_is_little_of_null_windows_may_be_much_of_what_they_are_taken_off() -> None:
    beside, alone = [4.196] * 8, [4.0] * 4
    assert slowed_by(beside, alone, "gated") is None
    assert slowed_by(beside, alone, "gated", net_ms=8.0) is None
    assert slowed_by(beside, alone, "gated", net_ms=2.0) == pytest.approx(1.049)
    assert unsure(beside, alone, "gated", [6.0] * 8, 2.0, once=True)
    assert not unsure(beside, alone, "gated", [6.0] * 8, 8.0, once=True)


@pytest.mark.parametrize(
    ("kind", "launches", "paced"),
    [("streamed", 8389, True), ("streamed", 400, False), ("streamed", None, False), ("gated", 8389, False)],
)
def test_the_host_sets_the_pace_of_streamed_windows_with_many_launches(
    kind: str, launches: int | None, paced: bool
) -> None:
    assert host_sets_pace([137.0, 138.0, 137.5], kind, launches) is paced
    assert not host_sets_pace([], kind, launches)
