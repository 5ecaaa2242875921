"""How many calls windows hold, by made-up rehearsals: a candidate cannot have them hold few."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from domain.flags import FlagCode
from domain.result import CANDIDATE, REFERENCE
from profiling.results.samples import TimeRecord
from profiling.stats.stopping_rule import coarse
from profiling.window.timed_window import GateClosed
from tasks.correctness.trials import Trials
from tasks.timing import window_sizing
from tasks.timing.gate_calibration import Calibration
from tasks.timing.timing_stage import RESERVE_S, Timekeeper
from tasks.timing.window_sizing import FEW, LEAST_MS, MOST_TIMES, WindowSize
from tests.flag_codes import codes

GIB = 1 << 30


def size(
    monkeypatch: pytest.MonkeyPatch,
    *,
    estimates_ms: dict[str, float],
    memory: int = GIB,
    given: int = 1,
    **found: Calibration | None,
) -> WindowSize:
    """Of kernel runs with such estimates, for which rehearsals found that."""
    kernel_runs = [
        SimpleNamespace(role=role, estimate_ms=ms, upper_bound_ms=ms, returned=[]) for role, ms in estimates_ms.items()
    ]
    rounds: Any = SimpleNamespace(
        kernel_runs=kernel_runs,
        candidate=kernel_runs[-1],
        example={role: [torch.empty(given, dtype=torch.uint8)] for role in estimates_ms},
        worker=SimpleNamespace(device=SimpleNamespace(is_cuda=True)),
        bytes_per_call=lambda: 1 << 20,
        filled_slots=None,
        memory=lambda: memory,
    )
    monkeypatch.setattr(window_sizing, "calibrate", lambda kernel_run, *_, **__: found[kernel_run.role])
    return WindowSize(cast(Trials, rounds), 1.0)


def record(calls: int, call_ms: float) -> TimeRecord:
    made = TimeRecord(calls, is_cuda=True, gated=True)
    made.elapsed_ms, made.null_ms = [0.4 + calls * call_ms] * 4, [0.4] * 4
    return made


def test_the_fastest_fills_its_window_as_far_as_both_can_be_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {REFERENCE: 0.02, CANDIDATE: 0.02}
    of = size(monkeypatch, estimates_ms=both, reference=Calibration(200, 0.02), candidate=Calibration(400, 0.01))
    assert of.calls == 200
    of = size(monkeypatch, estimates_ms=both, reference=Calibration(400, 0.015), candidate=Calibration(400, 0.01))
    assert of.calls == 320, "300, and as many more as windows of one kind have"


def test_what_a_rehearsal_took_counts_and_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 100.0}, candidate=Calibration(250, 0.012))
    assert of.calls == 250


@pytest.mark.parametrize("gated", [True, False])
def test_who_has_few_short_calls_queued_is_taken_anew_with_more(monkeypatch: pytest.MonkeyPatch, gated: bool) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 100.0}, candidate=Calibration(1, 0.65) if gated else None)
    assert of.calls == 1
    assert of.limited_by_candidate(record(1, 0.012)) and of.enlarge(record(1, 0.012))
    of.stream([CANDIDATE])
    of._rounds.candidate.estimate_ms = of._rounds.candidate.upper_bound_ms  # type: ignore[misc]
    assert of.calls == coarse(round(3.0 / LEAST_MS)) and not of.gated(of._rounds.candidate)


def test_nobody_is_taken_anew_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 0.1}, candidate=Calibration(1, 0.65))
    assert [of.enlarge(record(1, 0.012)) for _ in range(4)] == [True, True, False, False]
    assert of.limited_by_candidate(record(1, 0.012))  # Which is told then.


@pytest.mark.parametrize(("calls", "call_ms"), [(FEW, 0.012), (1, 1.2), (12, 0.09)])
def test_enough_calls_or_long_ones_are_not_few(monkeypatch: pytest.MonkeyPatch, calls: int, call_ms: float) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 0.1}, candidate=Calibration(calls, call_ms))
    assert not of.limited_by_candidate(record(calls, call_ms))


def test_few_by_the_references_doing_or_for_want_of_memory_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {REFERENCE: 1.6, CANDIDATE: 0.02}
    of = size(monkeypatch, estimates_ms=both, reference=Calibration(1, 1.6), candidate=Calibration(250, 0.012))
    assert of.calls == 1 and not of.limited_by_candidate(record(1, 0.012))
    of = size(
        monkeypatch, estimates_ms={CANDIDATE: 0.1}, memory=2 << 20, given=1000 << 10, candidate=Calibration(2, 0.3)
    )
    assert of.calls == 2 and not of.limited_by_candidate(record(2, 0.012))


def test_who_has_his_answers_take_the_memory_has_kept_few(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 0.1}, memory=2 << 20, candidate=Calibration(2, 0.3))
    of._rounds.candidate.returned.append(torch.empty(1000 << 10, dtype=torch.uint8))
    assert of.calls == 2 and of.limited_by_candidate(record(2, 0.012))


def test_windows_of_many_answers_hold_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 0.1}, candidate=Calibration(400, 0.012))
    of._rounds.candidate.returned.extend([torch.empty(1)] * 8000)
    assert of.calls == 4


@pytest.mark.parametrize("left_s", [100.0, 0.0])
@pytest.mark.parametrize("times_before", [0, MOST_TIMES])
def test_windows_of_few_calls_are_taken_anew_or_it_is_told(
    monkeypatch: pytest.MonkeyPatch, left_s: float, times_before: int
) -> None:
    of = size(monkeypatch, estimates_ms={CANDIDATE: 0.1}, candidate=Calibration(1, 0.65))
    records = {CANDIDATE: record(1, 0.012)}
    for _ in range(times_before):
        of.enlarge(records[CANDIDATE])
    now = time.monotonic()
    rounds = SimpleNamespace(candidate=of._rounds.candidate, deadline=now + RESERVE_S + left_s)
    keeper: Any = SimpleNamespace(rounds=rounds, window_runner=SimpleNamespace(streamed=set()))
    keeper._time_for_as_long = partial(Timekeeper._time_for_as_long, keeper)
    anew = left_s > 0 and not times_before
    with pytest.raises(GateClosed) if anew else nullcontext():
        Timekeeper._check_window_size(keeper, records, of, now)
    assert keeper.window_runner.streamed == ({CANDIDATE} if anew else set())
    assert codes(records[CANDIDATE].flags) == [FlagCode.FEW_CALLS_PER_WINDOW] * (not anew)
    assert [flag.data for flag in records[CANDIDATE].flags] == [{"calls_per_window": 1}] * (not anew)
