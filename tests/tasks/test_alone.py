"""What null windows take once the candidate's process is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from domain.kernel import Kernel, KernelType
from domain.result import CANDIDATE
from profiling.record import TimeRecord
from profiling.window import Clock, Window
from tasks.alone import Alone, OtherNulls
from tasks.contender import Contender

NULL_MS = 0.16
GONE = "asked for only when all calls are over"


def window(net_ms: float) -> Window:
    """One whose outputs are of no interest."""
    return Window(NULL_MS + net_ms, [], torch.empty(0), None, 0.1)


@pytest.mark.parametrize(("slowed_ms", "net_ms", "told"), [(0.8, 2.9, True), (0.05, 2.02, False), (0.0, 2.0, False)])
def test_null_windows_held_back_that_only_the_candidate_slowed_hide_nothing(
    tmp_path: Path, slowed_ms: float, net_ms: float, told: bool
) -> None:
    record = TimeRecord(10, is_cuda=True, gated=True)
    record.held_back.calls = record.calls
    for _ in range(6):
        record.add(window(2.0), Clock(NULL_MS, 0.1))
    for _ in range(4):
        record.held_back.add(window(net_ms), Clock(NULL_MS + slowed_ms, 0.1))
    assert record.timing("cold").flags == []
    alone = Alone(
        [Contender(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)],
        {},
        {CANDIDATE: record},
        lambda: {CANDIDATE: Clock(NULL_MS, 0.1)},
        [OtherNulls(record, record.held_back, lambda: Clock(NULL_MS, 0.1), 0.1)],
    )
    alone.shoot()
    alone.correct()
    assert ["longer beside this kernel's process" in flag for flag in alone.flags] == [True] * told
    assert any(GONE in flag for flag in record.timing("cold").flags) is told


def poisoned(tmp_path: Path, alone_ms: list[float]) -> tuple[TimeRecord, Alone]:
    """Every third null window took 4 ms beside the candidate, whose own windows were steady; shot alone, those."""
    record = TimeRecord(10, is_cuda=True, gated=True)
    for round_ in range(9):
        record.add(window(2.0), Clock(NULL_MS + 4.0 * (round_ % 3 == 0), 0.1))
    taken = iter(alone_ms)
    contender = Contender(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    alone = Alone([contender], {}, {CANDIDATE: record}, lambda: {CANDIDATE: Clock(next(taken), 0.1)})
    return record, alone


def test_a_null_window_that_is_slowed_now_and_then_takes_nothing_off(tmp_path: Path) -> None:
    record, alone = poisoned(tmp_path, [NULL_MS] * 12)
    assert record.net_ms.mean() < 1.0
    alone.shoot()
    alone.correct()
    assert record.net_ms == pytest.approx(2.0)
    assert alone.corrected and ["null windows took" in flag for flag in alone.flags] == [True]


def test_windows_alone_that_were_disturbed_are_not_the_last_word(tmp_path: Path) -> None:
    record, alone = poisoned(tmp_path, [NULL_MS, 3.0, NULL_MS] + [NULL_MS] * 9)
    alone.shoot()
    alone.correct()
    assert record.net_ms == pytest.approx(2.0)
    assert alone.flags


def test_where_nothing_can_be_told_no_null_window_takes_more_off_than_an_honest_one(tmp_path: Path) -> None:
    record, alone = poisoned(tmp_path, [NULL_MS, NULL_MS, 3.0] * 4)
    alone.shoot()
    alone.correct()
    assert alone.corrected and not alone.flags
    assert record.net_ms.min() == pytest.approx(2.0, abs=0.03)


def test_an_honest_candidates_windows_are_shot_alone_three_times(tmp_path: Path) -> None:
    record = TimeRecord(10, is_cuda=True, gated=True)
    for round_ in range(9):
        record.add(window(2.0), Clock(NULL_MS + 0.002 * (round_ % 3), 0.1))
    taken = iter([NULL_MS, NULL_MS + 0.002, NULL_MS])
    contender = Contender(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    alone = Alone([contender], {}, {CANDIDATE: record}, lambda: {CANDIDATE: Clock(next(taken), 0.1)})
    alone.shoot()
    alone.correct()
    assert not alone.corrected
