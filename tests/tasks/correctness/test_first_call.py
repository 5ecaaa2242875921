"""A first call that answers otherwise than the later ones, which are those that are compared."""

from __future__ import annotations

from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn(16, 64)]
"""
CANDIDATE = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.kept = 0, None

    def forward(self, x):
        self.calls += 1
        {forward}
"""


def judged(worker: WorkerContext, candidate: str, reference: str = "return x * 2") -> Report:
    kernel, other = (
        {"source_code": source.format(forward=forward), "kernel_type": "torch"}
        for source, forward in ((CANDIDATE, candidate), (REFERENCE, reference))
    )
    wire: dict[str, Any] = {"kernel": kernel, "reference": other, "num_trials": 1, "timeout": 60, "budget": "quick"}
    return run(Request.from_wire(wire), worker)


@pytest.mark.parametrize(
    "forward",
    [
        "return x * (4 if self.calls == 1 else 2)",
        "y = x * 2; return y + y if self.calls == 1 else y",
        "return x * 2 if self.calls > 1 else torch.full_like(x, float('nan'))",
    ],
)
def test_a_kernel_that_is_wrong_in_its_first_call_alone_is_wrong(worker: WorkerContext, forward: str) -> None:
    outcome = judged(worker, forward).outcome
    assert outcome.status is Status.WRONG_RESULT and "first call" in (outcome.message or ""), outcome.message


@pytest.mark.parametrize(
    ("forward", "reference"),
    [
        # What rounds otherwise once it has been tuned; what answers in one memory, or in an argument.
        ("return (x.bfloat16() * 2).float() if self.calls == 1 else x * 2", "return x * 2"),
        (
            "self.kept = torch.empty_like(x) if self.kept is None else self.kept; "
            "return torch.mul(x, 2, out=self.kept)",
            "return x * 2",
        ),
        ("return x.mul_(2)", "return x.mul_(2)"),
        ("x.add_(1); return x * 2", "x.add_(1); return x * 2"),
        ("return F.dropout(x, 0.5, True)", "return F.dropout(x, 0.5, True)"),
        # Of what answers in an argument nothing is known of the first call.
        ("x.add_(1); return x + 0", "x.add_(1); return x"),
        # Answers that are next to nothing, levels, and places are other ones by rounding alone.
        (
            "y = F.layer_norm(x.double() if self.calls == 1 else x, (64,)); return y.mean(-1).float()",
            "return F.layer_norm(x, (64,)).mean(-1)",
        ),
        ("y = x.bfloat16().float() if self.calls == 1 else x; return (y * 40).round()", "return (x * 40).round()"),
        ("y = x.bfloat16() if self.calls == 1 else x; return y.argmax(-1)", "return x.argmax(-1)"),
    ],
)
def test_other_first_calls_are_nobodys_mistake(worker: WorkerContext, forward: str, reference: str) -> None:
    outcome = judged(worker, forward, reference).outcome
    assert "first call" not in (outcome.message or ""), outcome.message
    assert outcome.status is Status.PASSED, outcome.message


def test_what_is_wrong_otherwise_is_said_first(worker: WorkerContext) -> None:
    outcome = judged(worker, "e = x.exp_(); return e / e.sum(-1, keepdim=True)", "return x.softmax(-1)").outcome
    assert outcome.status is Status.WRONG_RESULT and "changed its inputs" in (outcome.message or "")
