"""Slower beside a submission: told beyond noise, and not within it."""

from __future__ import annotations

import numpy as np
import pytest

from profiling.beside import slowed_by


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
