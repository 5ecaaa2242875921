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
