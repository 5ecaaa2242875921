"""Whoever answers with a view of what it was given has not written what its reference writes: that is told."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext

MODEL = """
class {name}(nn.Module):
    def forward(self, x):
        return {answer}

def get_inputs():
    return [torch.randn(64, 48)]
"""
NUMBERS_BOTH = "x[1:], x + 1, x.t()"


def model(name: str, answer: str) -> dict[str, Any]:
    return {"kernel_type": "torch", "source_code": MODEL.format(name=name, answer=answer)}


@pytest.mark.parametrize(
    ("reference", "candidate", "outputs"),
    [
        ("x.t().contiguous()", "x.t()", "0"),
        ("x.repeat(3, 1, 1)", "x.expand(3, -1, -1)", "0"),
        ("x.clone()", "x", "0"),
        ("(x[1:].clone(), x + 1, x.t().clone())", f"({NUMBERS_BOTH})", "0, 2"),
        ("x.t()", "x.t()", None),
        ("x.t()", "x.t().contiguous()", None),
        ("x + 1", "(x + 1).t().contiguous().t()", None),
        ("x + 1", "(x.clone() + 1)[:]", None),
    ],
)
def test_views_where_the_reference_makes_tensors_are_told(
    worker: WorkerContext, reference: str, candidate: str, outputs: str | None
) -> None:
    wire = {"kernel": model("ModelNew", candidate), "reference": model("Model", reference), "budget": "quick"}
    outcome = run(Request.from_wire(wire | {"timeout": 60, "num_trials": 10}), worker).outcome
    assert outcome.status is Status.PASSED, outcome.message
    assert outcome.timing is not None
    views = [flag.data for flag in outcome.timing.flags if flag.code is FlagCode.OUTPUT_IS_INPUT_VIEW]
    assert views == ([{"outputs": outputs}] if outputs else [])
