"""What becomes of gated windows that are ready late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.result import CANDIDATE
from profiling.results.samples import TimeRecord
from profiling.window.timed_window import GateClosed
from tasks.runtime.time_budget import TimeBudget
from tasks.timing.timing_stage import Timekeeper


def keeper(*, one_stream: bool) -> Any:
    made: Any = Timekeeper.__new__(Timekeeper)
    made.rounds = SimpleNamespace(
        candidate=SimpleNamespace(role=CANDIDATE, probe=SimpleNamespace(one_stream=one_stream))
    )
    made.budget = TimeBudget(float("inf"))
    looked = SimpleNamespace(check_call_time=lambda ms: None, check_setup_delay=lambda ms: None)
    made.streams, made.window_runner = looked, SimpleNamespace(streamed=set())
    made._streamed_for_delay, made._delayed_takes = False, 0
    return made


def taken_anew(made: Any, *, late: bool = True) -> bool:
    record = cast(TimeRecord, SimpleNamespace(gated=True, setup_delayed=late, post_release_ms=1.0))
    try:
        made._check_setup_delay({CANDIDATE: record}, 0.0)
    except GateClosed:
        return True
    return False


def test_of_one_stream_they_are_taken_anew_once_and_stay_behind_the_gate() -> None:
    made = keeper(one_stream=True)
    assert [taken_anew(made) for _ in range(4)] == [True, False, False, False], "whatever else has it taken anew"
    assert made.window_runner.streamed == set() and not made._streamed_for_delay


def test_of_several_streams_they_are_taken_without_the_gate() -> None:
    made = keeper(one_stream=False)
    assert taken_anew(made)
    assert made.window_runner.streamed == {CANDIDATE} and made._streamed_for_delay


@pytest.mark.parametrize("one_stream", [True, False])
def test_in_time_they_stay(one_stream: bool) -> None:
    made = keeper(one_stream=one_stream)
    assert not taken_anew(made, late=False) and not made._streamed_for_delay


def test_where_there_is_no_time_they_stay_too() -> None:
    made = keeper(one_stream=False)
    made.budget = TimeBudget(0.0)
    assert not taken_anew(made)
