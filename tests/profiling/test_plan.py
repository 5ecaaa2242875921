"""How many calls and windows: bounded whatever a contender says of itself."""

from __future__ import annotations

import pytest

from profiling.plan import (
    MAX_CALLS,
    MIN_WINDOWS,
    TARGET_MS,
    calls_that_fill,
    calls_that_fit,
    calls_to_rehearse,
    windows_for,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("slowest_ms", "bytes_per_call", "memory", "calls"),
    [
        (0.004, 1024, GIB, MAX_CALLS["cuda"]),
        (20.0, 1024, GIB, 5),
        (0.004, 1 << 20, 10 << 20, 10),
        (0.004, GIB, 1 << 20, 1),
        (1e12, 0, GIB, 1),
        (0.0, 0, GIB, MAX_CALLS["cuda"]),
    ],
)
def test_the_queue_the_memory_and_the_slowest_bound_a_window(
    slowest_ms: float, bytes_per_call: int, memory: int, calls: int
) -> None:
    assert (
        calls_that_fit(slowest_ms, num_trials=1000, bytes_per_call=bytes_per_call, memory=memory, is_cuda=True) == calls
    )


@pytest.mark.parametrize(("num_trials", "calls"), [(1, 50), (12, 50), (50, 200), (100, 400), (10_000, 400)])
def test_few_trials_make_short_windows(num_trials: int, calls: int) -> None:
    assert calls_that_fit(0.004, num_trials=num_trials, bytes_per_call=1, memory=GIB, is_cuda=True) == calls


def test_the_fastest_fills_its_window_within_the_limit() -> None:
    assert calls_that_fill(TARGET_MS["cuda"] / 20, 400, is_cuda=True) == 20
    assert calls_that_fill(TARGET_MS["cuda"] / 2000, 400, is_cuda=True) == 400
    assert calls_that_fill(0.0, 400, is_cuda=False) == 400
    assert calls_that_fill(1e12, 400, is_cuda=False) == 1


def test_a_rehearsal_tries_more_than_the_estimate_asks_for() -> None:
    assert calls_to_rehearse(TARGET_MS["cuda"] / 20, 400) == 80


def test_at_least_the_trials_asked_for_in_at_least_five_windows() -> None:
    assert windows_for(30, 1) == 30
    assert windows_for(1, 400) == MIN_WINDOWS
    assert windows_for(10_000, 400) == 25
