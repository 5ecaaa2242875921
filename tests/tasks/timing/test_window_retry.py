"""Which windows are taken again, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from profiling.results.samples import TimeRecord
from profiling.window.timed_window import Clock, Window
from tasks.timing.window_retry import LATE, MOST, RetryPolicy


def record(early_start_ms: float, **how: Any) -> TimeRecord:
    """Whose last window was made ready by so much later than its null window."""
    made = TimeRecord(10, is_cuda=True, gated=True)
    for name, value in how.items():
        setattr(made, name, value)
    made.setup_ms, made.null_setup_ms = [0.1, 0.1 + early_start_ms], [0.1, 0.1]
    return made


def test_late_and_throttled_windows_are_taken_again_up_to_three_times_and_told() -> None:
    retakes = RetryPolicy()
    assert not retakes.should_retry(None, [record(0.2)])
    assert [retakes.should_retry(None, [record(0.0), record(0.3)]) for _ in range(2)] == [True, True]
    throttled = [retakes.throttled]  # A late window says nothing of the card.
    assert [retakes.should_retry("too hot", [record(0.0)]) for _ in range(2)] == [True, False]
    assert [*throttled, retakes.throttled] == [False, True]
    assert (retakes.reasons, retakes.suppressed) == (["too hot"], ["too hot"]), (
        "a busy host makes one late now and then"
    )
    assert not retakes.should_retry(None, [record(3.0)]), "what is always late is charged"
    assert retakes.suppressed == ["too hot"]


@pytest.mark.parametrize("how", [{"gated": False}, {"is_candidate": False}, {"is_cuda": False}])
def test_late_is_only_who_is_charged_for_it(how: dict[str, Any]) -> None:
    assert not RetryPolicy().should_retry(None, [record(3.0, **how)])


def test_who_works_ahead_in_some_windows_gains_nothing_by_their_being_taken_again() -> None:
    made, retakes = TimeRecord(1, is_cuda=True, gated=True), RetryPolicy()
    turns = iter([3.0, 0.0] * 12)
    while len(made.elapsed_ms) < 8:
        early_start_ms = next(turns)  # What was done before the gun is not done after it.
        made.add(Window(5.16 - early_start_ms, [], None, None, 0.1 + early_start_ms), Clock(0.16, 0.1))  # type: ignore[arg-type]
        if retakes.should_retry(None, [made]):
            made.drop_last()
    assert retakes.reasons == [LATE] * MOST
    assert made.net_ms == pytest.approx([5.0] * 8)
