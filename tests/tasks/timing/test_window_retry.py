"""Which rounds and measurements are repeated, and how often."""

from __future__ import annotations

import pytest

from profiling.results.estimate import net_ms
from profiling.results.samples import WindowSetup
from profiling.window.timed_window import Clock
from tasks.timing.window_retry import LATE, MOST, RetryPolicy, is_late, repeat_delayed
from tests.kernel_windows import kernel_windows, window

GATED = WindowSetup(10, is_cuda=True, gated=True)
NULL = Clock(0.16, 0.1)


def test_retry_policy_throttled_and_late_rounds_repeats_three_at_most() -> None:
    retakes = RetryPolicy()
    assert not retakes.should_retry(None, late=False)
    assert [retakes.should_retry(None, late=True) for _ in range(2)] == [True, True]
    throttled = [retakes.throttled]  # A late window says nothing of the card.
    assert [retakes.should_retry("too hot", late=False) for _ in range(2)] == [True, False]
    assert [*throttled, retakes.throttled] == [False, True]
    assert retakes.reasons == ["too hot"], "a busy host makes a window late now and then"
    assert retakes.suppressed == ["too hot"]
    assert not retakes.should_retry(None, late=True), "a window that is always late counts"
    assert retakes.suppressed == ["too hot"]


@pytest.mark.parametrize(
    ("setup", "early_start_ms", "late"),
    [
        (GATED, 0.2, False),
        (GATED, 3.0, True),
        (WindowSetup(10, is_cuda=True, gated=False), 3.0, False),
        (WindowSetup(10, is_cuda=True, gated=True, is_candidate=False), 3.0, False),
        (WindowSetup(10, is_cuda=False, gated=False), 3.0, False),
    ],
)
def test_is_late_only_where_the_setup_counts_as_work(setup: WindowSetup, early_start_ms: float, late: bool) -> None:
    assert is_late(setup, Clock(2.0, 0.1 + early_start_ms), NULL) is late


def test_retry_policy_work_ahead_in_some_windows_changes_no_time() -> None:
    made, retakes = kernel_windows(1), RetryPolicy()
    turns = iter([3.0, 0.0] * 12)
    while len(made.usual.elapsed_ms) < 8:
        early_start_ms = next(turns)  # Work before the release is not done after it.
        taken = window(5.16 - early_start_ms, setup_ms=0.1 + early_start_ms)
        if not retakes.should_retry(None, late=is_late(made.usual.setup, taken.clock, NULL)):
            made.usual.add(taken, NULL)
    assert retakes.reasons == [LATE] * MOST
    assert net_ms(made) == pytest.approx([5.0] * 8)


def test_repeat_delayed_one_stream_is_gated_once_more_and_stays() -> None:
    repeats = [repeat_delayed(delayed, one_stream=True, has_time=True) for delayed in (1, 2, 3)]
    assert repeats == ["gated", None, None]


def test_repeat_delayed_several_streams_is_streamed() -> None:
    assert repeat_delayed(1, one_stream=False, has_time=True) == "streamed"


@pytest.mark.parametrize("one_stream", [True, False])
def test_repeat_delayed_without_time_is_not_repeated(one_stream: bool) -> None:
    assert repeat_delayed(1, one_stream=one_stream, has_time=False) is None
