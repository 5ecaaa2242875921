"""Drawing inputs keeps its budget even where one set takes long."""

from __future__ import annotations

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks import trial_inputs
from tasks.pipeline import run
from tasks.workbench import Workbench

SLOW = """
import time

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    time.sleep({seconds})
    return [torch.randn(4, 8)]
"""


def compared(bench: Workbench, seconds: float) -> Report:
    reference = {"kernel_type": "torch", "source_code": SLOW.format(seconds=seconds)}
    candidate = {"kernel_type": "torch", "source_code": SLOW.format(seconds=0).replace("x * 2", "x + x")}
    wire = {"kernel": candidate, "reference": reference, "num_trials": 200, "timeout": 60}
    return run(Request.from_wire(wire), bench, lambda stage: None, lambda: False)


def test_a_slow_maker_ends_drawing_at_the_budget_and_sets_come_again(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_inputs, "DRAW_BUDGET_S", 1.0)
    report = compared(bench, 0.1)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    inputs = report.outcome.inputs
    # The example, five to validate with, and what the rest of a second gives: never a batch of 64.
    assert 6 <= inputs["fresh_sets"] <= 16 and inputs["reused_sets"] > 0


def test_sets_that_cost_nothing_are_drawn_for_every_call(bench: Workbench) -> None:
    report = compared(bench, 0)
    assert report.outcome.status is Status.PASSED and report.outcome.inputs["reused_sets"] == 0
