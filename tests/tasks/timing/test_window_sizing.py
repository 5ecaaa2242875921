"""How many calls windows hold, by made-up rehearsals: a candidate cannot have them hold few."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from domain.flags.codes import FlagCode
from profiling.stats.stopping_rule import coarse
from profiling.window.timed_window import GateClosed
from tasks.correctness.trials import Trials
from tasks.timing import window_sizing
from tasks.timing.gate_calibration import Calibration
from tasks.timing.window_sizing import FEW, LEAST_MS, MOST_TIMES, WindowSize

GIB = 1 << 30


def kernel_runs(**estimates_ms: float) -> list[Any]:
    """Kernel runs with such estimates, by role."""
    return [estimated(role, ms) for role, ms in estimates_ms.items()]


def estimated(role: str, estimate_ms: float) -> Any:
    made = SimpleNamespace(role=role, estimate_ms=estimate_ms, returned=[])
    made.cap_estimate = lambda call_ms: setattr(made, "estimate_ms", min(made.estimate_ms, call_ms))
    return made


def size(
    monkeypatch: pytest.MonkeyPatch,
    kernel_runs: list[Any],
    *,
    memory: int = GIB,
    input_bytes: int = 1,
    **calibrations: Calibration | None,
) -> WindowSize:
    """Window sizes on a GPU, where calibration gives these results by role."""
    rounds: Any = SimpleNamespace(
        kernel_runs=kernel_runs,
        candidate=kernel_runs[-1],
        example={each.role: [torch.empty(input_bytes, dtype=torch.uint8)] for each in kernel_runs},
        worker=SimpleNamespace(device=SimpleNamespace(is_cuda=True)),
        bytes_per_call=lambda: 1 << 20,
        filled_slots=None,
        memory=lambda: memory,
    )
    monkeypatch.setattr(window_sizing, "calibrate", lambda kernel_run, *_, **__: calibrations[kernel_run.role])
    return WindowSize(cast(Trials, rounds), 1.0)


def test_calls_of_two_kernels_fill_the_fastest_window_within_both_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = kernel_runs(reference=0.02, candidate=0.02)
    of = size(monkeypatch, runs, reference=Calibration(200, 0.02), candidate=Calibration(400, 0.01))
    assert of.calls == 200
    of = size(monkeypatch, runs, reference=Calibration(400, 0.015), candidate=Calibration(400, 0.01))
    assert of.calls == 320, "300, rounded up"


def test_calls_calibrated_kernel_ignore_its_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, kernel_runs(candidate=100.0), candidate=Calibration(250, 0.012))
    assert of.calls == 250


@pytest.mark.parametrize("gated", [True, False])
def test_check_few_short_calls_repeats_streamed_with_more(monkeypatch: pytest.MonkeyPatch, gated: bool) -> None:
    runs = kernel_runs(candidate=100.0)
    of = size(monkeypatch, runs, candidate=Calibration(1, 0.65) if gated else None)
    assert of.calls == 1
    with pytest.raises(GateClosed):
        of.check(1, 0.012, has_time=True)
    assert of.calls == coarse(round(3.0 / LEAST_MS)) and not of.gated(runs[-1])


def test_check_few_short_calls_after_two_repetitions_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, kernel_runs(candidate=0.1), candidate=Calibration(1, 0.65))
    for _ in range(MOST_TIMES):
        with pytest.raises(GateClosed):
            of.check(1, 0.012, has_time=True)
    flag = of.check(1, 0.012, has_time=True)
    assert flag is not None and (flag.code, flag.data) == (FlagCode.FEW_CALLS_PER_WINDOW, {"calls_per_window": 1})


def test_check_few_short_calls_without_time_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    of = size(monkeypatch, kernel_runs(candidate=0.1), candidate=Calibration(1, 0.65))
    flag = of.check(1, 0.012, has_time=False)
    assert flag is not None and (flag.code, flag.data) == (FlagCode.FEW_CALLS_PER_WINDOW, {"calls_per_window": 1})


@pytest.mark.parametrize(("calls", "call_ms"), [(FEW, 0.012), (1, 1.2), (12, 0.09)])
def test_check_enough_calls_or_long_ones_is_no_flag(
    monkeypatch: pytest.MonkeyPatch, calls: int, call_ms: float
) -> None:
    of = size(monkeypatch, kernel_runs(candidate=0.1), candidate=Calibration(calls, call_ms))
    assert of.check(calls, call_ms, has_time=True) is None


def test_check_few_calls_by_the_reference_or_by_memory_is_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = kernel_runs(reference=1.6, candidate=0.02)
    of = size(monkeypatch, runs, reference=Calibration(1, 1.6), candidate=Calibration(250, 0.012))
    assert of.calls == 1 and of.check(1, 0.012, has_time=True) is None
    runs = kernel_runs(candidate=0.1)
    of = size(monkeypatch, runs, memory=2 << 20, input_bytes=1000 << 10, candidate=Calibration(2, 0.3))
    assert of.calls == 2 and of.check(2, 0.012, has_time=True) is None


def test_check_few_calls_by_the_memory_of_own_outputs_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = kernel_runs(candidate=0.1)
    of = size(monkeypatch, runs, memory=2 << 20, candidate=Calibration(2, 0.3))
    runs[-1].returned.append(torch.empty(1000 << 10, dtype=torch.uint8))
    assert of.calls == 2 and of.check(2, 0.012, has_time=False) is not None


def test_calls_many_outputs_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = kernel_runs(candidate=0.1)
    of = size(monkeypatch, runs, candidate=Calibration(400, 0.012))
    runs[-1].returned.extend([torch.empty(1)] * 8000)
    assert of.calls == 4
