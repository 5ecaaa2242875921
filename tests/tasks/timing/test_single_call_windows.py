"""Calls by themselves, of a job on a card: what they take longer is compared with what the reference's do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from domain.flags import FlagCode
from domain.result import CANDIDATE, REFERENCE
from profiling.integrity.disagreement import SETTLED
from profiling.integrity.single_call import SETTLED_STREAMED
from profiling.results.samples import TimeRecord
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, Window
from tasks.runtime.time_budget import TimeBudget
from tasks.timing.consistency_checks import BATCH_SIZE, FEWEST, CrossChecks
from tasks.timing.window_runner import WindowRunner
from tests.flag_codes import codes


@pytest.mark.parametrize(
    ("candidate", "known"),
    [
        (Slots(1, [torch.empty(8)], (), [torch.empty(8)], "cpu"), True),
        (Slots(1, [torch.empty(8)], (), [torch.empty(16)], "cpu"), False),
        (Slots(1, [torch.empty(8), torch.empty(8)], (1,), [], "cpu"), False),
    ],
    ids=["the same", "more", "as an argument"],
)
def test_a_reference_tells_what_a_call_takes_longer_by_itself_where_it_hands_in_the_same(
    candidate: Slots, known: bool
) -> None:
    records = {role: TimeRecord(10, is_cuda=True, gated=True) for role in (REFERENCE, CANDIDATE)}
    slots = {REFERENCE: Slots(1, [torch.empty(8)], (), [torch.empty(8)], "cpu"), CANDIDATE: candidate}
    own = SimpleNamespace(role=CANDIDATE)
    held: Any = SimpleNamespace(_records=records, _candidate=own)
    assert CrossChecks._reference_with_same_nulls(held, slots) is (records[REFERENCE] if known else None)
    alone: Any = SimpleNamespace(_records={CANDIDATE: records[CANDIDATE]}, _candidate=own)
    assert CrossChecks._reference_with_same_nulls(alone, slots) is None


class OnACard:
    """Stands in for what shoots windows on a GPU: a call by itself takes `alone_ms` by the kernel run's role."""

    def __init__(self, alone_ms: dict[str, float]) -> None:
        self.alone_ms = alone_ms
        self.kernel_runs = [SimpleNamespace(role=role, probe=None) for role in alone_ms]
        self.worker = SimpleNamespace(device=SimpleNamespace(is_cuda=True))
        self.rounds = SimpleNamespace(
            kernel_runs=self.kernel_runs,
            candidate=self.kernel_runs[-1],
            right=True,
            budget=TimeBudget(600.0),
            slots=self.slots,
            fill=lambda slots: None,
            judge=lambda slots, windows: None,
            memory=lambda: 1 << 30,
            bytes_per_call=lambda: 64,
        )

    def slots(self, calls: int) -> dict[str, Slots]:
        return {role: Slots(calls, [torch.empty(8)], (), [torch.empty(8)], "cpu") for role in self.alone_ms}

    def record(self, usual_ms: float, *, gated: bool) -> TimeRecord:
        made = TimeRecord(50, is_cuda=True, gated=gated)
        for noise_ms in (-0.001, 0.0, 0.001, 0.0):
            made.add(Window(0.16 + 50 * usual_ms + noise_ms, [], torch.empty(0), None, 0.1), Clock(0.16, 0.1))
        return made

    def run(self, kernel_run: Any, slots: dict[str, Slots], record: TimeRecord, **how: Any) -> Window:
        return Window(0.16 + self.alone_ms[kernel_run.role], [], torch.empty(0), None, 0.1)

    def null_window(self, *taken: Any, **how: Any) -> Clock:
        return Clock(0.16, 0.1)

    def null_windows(self, slots: dict[str, Slots], *taken: Any) -> dict[str, Clock]:
        return {role: Clock(0.16, 0.1) for role in slots}

    def nothing(self, *taken: Any) -> None:
        pass

    warm_up_null = shuffle_allocations = shuffle_allocations_of = nothing


@pytest.mark.parametrize(
    ("usual_ms", "alone_ms", "gated", "told", "taken"),
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
def test_calls_by_themselves(
    usual_ms: dict[str, float], alone_ms: dict[str, float], gated: bool, told: bool, taken: int
) -> None:
    card = OnACard(alone_ms)
    records = {role: card.record(usual_ms[role], gated=gated) for role in usual_ms}
    checks = CrossChecks(cast(WindowRunner, card), records, round_s=0.01)
    checks.single_call_windows(card.slots(50))
    record = records[CANDIDATE]
    assert (FlagCode.SINGLE_CALL_SLOWER in codes(record.timing("cold").flags)) is told
    assert [len(each.single.elapsed_ms) for each in records.values()] == [taken] * len(records)
    (nulls,) = checks.nulls
    assert nulls.windows is record.single and nulls.measure() == Clock(0.16, 0.1)
    assert list(nulls.reference_windows) == [each.single for each in records.values() if each is not record]
