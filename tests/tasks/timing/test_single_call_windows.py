"""Calls by themselves, of a job on a card: what they take longer is compared with what the reference's do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from domain.flags.codes import FlagCode
from domain.result import CANDIDATE, REFERENCE
from profiling.integrity.disagreement import SETTLED
from profiling.integrity.single_call import SETTLED_STREAMED
from profiling.results.samples import Samples, WindowSetup
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, Window
from tasks.runtime.time_budget import TimeBudget
from tasks.timing.consistency_checks import BATCH_SIZE, FEWEST, CrossChecks
from tasks.timing.window_runner import WindowRunner
from tests.flag_codes import codes
from tests.kernel_windows import kernel_windows, timing_of, window


def layout(calls: int = 1, output_bytes: int = 8) -> Slots:
    return Slots(calls, [torch.empty(8)], (), [torch.empty(output_bytes)], "cpu")


class OnACard:
    """Stands in for what shoots windows on a GPU: a call by itself takes `alone_ms` by the kernel run's role."""

    def __init__(self, alone_ms: dict[str, float], own_slots: Callable[[int], Slots] = layout) -> None:
        self.alone_ms = alone_ms
        self.own_slots = own_slots
        self.kernel_runs = [SimpleNamespace(role=role, probe=None) for role in alone_ms]
        self.worker = SimpleNamespace(device=SimpleNamespace(is_cuda=True))
        self.rounds = SimpleNamespace(
            kernel_runs=self.kernel_runs,
            candidate=self.kernel_runs[-1],
            right=True,
            budget=TimeBudget(float("inf")),
            slots=self.slots,
            fill=lambda slots: None,
            judge=lambda slots, windows: None,
            memory=lambda: 1 << 30,
            bytes_per_call=lambda: 64,
        )

    def slots(self, calls: int) -> dict[str, Slots]:
        return {role: (self.own_slots if role == CANDIDATE else layout)(calls) for role in self.alone_ms}

    def samples(self, usual_ms: dict[str, float], *, gated: bool) -> dict[str, Samples]:
        made = {role: kernel_windows(50, gated=gated, is_candidate=role == CANDIDATE).usual for role in self.alone_ms}
        for role, samples in made.items():
            for noise_ms in (-0.001, 0.0, 0.001, 0.0):
                samples.add(window(0.16 + 50 * usual_ms[role] + noise_ms), Clock(0.16, 0.1))
        return made

    def run(self, kernel_run: Any, slots: dict[str, Slots], setup: WindowSetup, **how: Any) -> Window:
        return window(0.16 + self.alone_ms[kernel_run.role])

    def null_window(self, *taken: Any, **how: Any) -> Clock:
        return Clock(0.16, 0.1)

    def null_windows(self, slots: dict[str, Slots], *taken: Any) -> dict[str, Clock]:
        return {role: Clock(0.16, 0.1) for role in slots}

    def nothing(self, *taken: Any) -> None:
        pass

    warm_up_null = shuffle_allocations = shuffle_allocations_of = nothing


@pytest.mark.parametrize(
    ("usual_ms", "alone_ms", "gated", "flagged", "windows"),
    [
        ({CANDIDATE: 0.015}, {CANDIDATE: 0.005}, True, False, FEWEST),
        ({CANDIDATE: 0.001}, {CANDIDATE: 0.005}, True, False, FEWEST),
        ({REFERENCE: 0.015, CANDIDATE: 0.015}, {REFERENCE: 0.005, CANDIDATE: 0.005}, True, False, FEWEST),
        ({REFERENCE: 0.015, CANDIDATE: 0.001}, {REFERENCE: 0.005, CANDIDATE: 0.005}, True, True, SETTLED),
        ({CANDIDATE: 0.05}, {CANDIDATE: 0.06}, False, False, BATCH_SIZE),
        ({CANDIDATE: 0.05}, {CANDIDATE: 0.3}, False, True, SETTLED_STREAMED),
    ],
    ids=["alone", "a batch alone", "beside its equal", "a batch", "without the gate", "a batch without the gate"],
)
def test_single_call_windows_are_as_many_as_the_decision_needs(
    usual_ms: dict[str, float], alone_ms: dict[str, float], gated: bool, flagged: bool, windows: int
) -> None:
    card = OnACard(alone_ms)
    checks = CrossChecks(cast(WindowRunner, card), card.samples(usual_ms, gated=gated), round_s=0.01)
    checks.single_call_windows(card.slots(50))
    *references, own = checks.windows.values()
    assert (FlagCode.SINGLE_CALL_SLOWER in codes(timing_of(own, *references).flags)) is flagged
    assert [len(each.single.elapsed_ms) for each in checks.windows.values()] == [windows] * len(checks.windows)
    (nulls,) = checks.nulls
    assert nulls.of(own) is own.single and nulls.measure() == Clock(0.16, 0.1)


@pytest.mark.parametrize(
    ("own_slots", "comparable"),
    [
        (layout, True),
        (partial(layout, output_bytes=16), False),
        (lambda calls: Slots(calls, [torch.empty(8), torch.empty(8)], (1,), [], "cpu"), False),
    ],
    ids=["same outputs", "larger output", "output argument"],
)
def test_single_call_windows_compare_with_a_reference_of_the_same_outputs(
    own_slots: Callable[[int], Slots], comparable: bool
) -> None:
    both = {REFERENCE: 0.005, CANDIDATE: 0.005}
    card = OnACard(both, own_slots)
    checks = CrossChecks(cast(WindowRunner, card), card.samples(both, gated=True), round_s=0.01)
    checks.single_call_windows(card.slots(50))
    assert checks.windows[CANDIDATE].comparable_singles is comparable
