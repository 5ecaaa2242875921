"""Null windows that are known from the last job, on a card: nothing is shot again, and nobody gains by it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from domain.request import Request
from domain.result import Status, Timing
from tasks.evaluation.pipeline import run
from tasks.timing.null_window_recheck import NullWindowRecheck
from tests.exploits.corpus import corpus
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

JOBS = 6
"""Some of which find windows of another number of calls, or one that was broken into."""
INPUTS = """
def get_inputs():
    return [torch.randn(1 << 20, device='cuda')]
"""
BUSY = next(one.source for one in corpus(honest=False) if one.name == "t31_poisoned_null") + INPUTS
"""Keeps the device busy while others are timed."""
STEPS_IN = "sandbox.runner.runner.Runner.window = resting\n"
CHAIN = BUSY.replace(STEPS_IN, "")
"""The same kernel, which does not."""


@pytest.fixture
def worker() -> Iterator[Any]:
    with own_worker() as opened:
        opened.ceilings()
        yield opened


def timed(worker: Any, source: str) -> Timing:
    kernel = {"source_code": source, "kernel_type": "torch"}
    wire = {"kernel": kernel, "num_trials": 20, "timeout": 60, "target_precision": 0.05, "budget": "quick"}
    outcome = run(Request.from_wire(wire), worker).outcome
    assert outcome.status is Status.PASSED and outcome.timing is not None, outcome
    return outcome.timing


def test_jobs_of_a_kind_shoot_null_windows_alone_but_now_and_then(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shot: list[NullWindowRecheck] = []
    shoot = NullWindowRecheck.measure

    def noted(alone: NullWindowRecheck) -> None:
        shot.append(alone)
        shoot(alone)

    monkeypatch.setattr(NullWindowRecheck, "measure", noted)
    found = [timed(worker, CHAIN) for _ in range(JOBS)]
    assert 1 <= len(shot) < JOBS
    assert sum(timing.baseline_from_cache for timing in found) == JOBS - len(shot)
    usual = statistics.median(timing.latency_ms for timing in found)
    unlike = [timing for timing in found if abs(timing.latency_ms / usual - 1) > 0.1]
    assert all(timing.flags or timing.method != "gated_window" for timing in unlike), unlike


def test_who_is_busy_beside_null_windows_gains_nothing_where_they_are_known(worker: Any) -> None:
    honest = min(timed(worker, CHAIN).latency_ms for _ in range(3))
    assert STEPS_IN in BUSY
    busy = timed(worker, BUSY)
    assert busy.latency_ms > 0.95 * honest - 3e-3
