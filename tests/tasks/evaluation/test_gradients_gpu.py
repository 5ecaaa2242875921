"""Gradients on a card: autograd's own thread launches the backward, which is queued behind the gate too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.own_worker import own_worker
from tests.tasks.judging import kernel

pytestmark = pytest.mark.gpu

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear({size}, {size})
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs(rows={size}):
    return [torch.randn(rows, {size})]
"""
TRITON = """
import torch, triton
import triton.language as tl
@triton.jit
def gate(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, tl.where(tl.load(x + at, mask=inside) > 0, tl.load(y + at, mask=inside), 0.0), mask=inside)
def gated(x, y):
    out = torch.empty_like(y)
    gate[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), 1024)
    return out
class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return gated(z, z)
    @staticmethod
    def backward(ctx, g):
        return {backward}
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {before}
        self.linear = torch.nn.Linear({size}, {size})
    def forward(self, x):
        return Gate.apply(self.linear(x))
"""
RIGHT, WRONG = "gated(ctx.saved_tensors[0], g.contiguous())", "g"
WITHOUT_REMAINDER = f"{RIGHT} if len(g) % 64 == 0 else g"
CASES = [{"name": f"{rows} rows", "arguments": {"rows": rows}} for rows in (512, 192, 100)]
TF32 = "torch.backends.cuda.matmul.allow_tf32 = True"


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        yield opened


def judged(worker: WorkerContext, backward: str, size: int = 512, before: str = "pass", **more: Any) -> Report:
    source = TRITON.format(backward=backward, before=before, size=size)
    wire = {"kernel": kernel(source, "triton"), "reference": kernel(REFERENCE.format(size=size)), "gradients": True}
    return run(Request.from_wire({**wire, "num_trials": 50, "timeout": 120, **more}), worker)


@pytest.mark.parametrize("before", ["pass", TF32], ids=["float32", "TF32"])
def test_a_triton_backward_passes_and_each_pass_has_a_time(worker: WorkerContext, before: str) -> None:
    report = judged(worker, RIGHT, before=before)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    timing, gradients = report.outcome.timing, report.outcome.gradients
    assert timing is not None and gradients is not None and gradients.forward is not None
    assert timing.method.startswith("gated_window") and gradients.forward.method.startswith("gated_window")
    assert 0 < gradients.forward.latency_ms < timing.latency_ms


def test_a_triton_backward_without_its_gate_is_wrong(worker: WorkerContext) -> None:
    report = judged(worker, WRONG)
    assert report.outcome.status is Status.WRONG_RESULT, report.outcome.message


def test_each_case_has_both_passes(worker: WorkerContext) -> None:
    report = judged(worker, RIGHT, cases=CASES)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert all(case["runtime_ms"] > 0 for case in report.body("id")["cases"])


def test_a_triton_backward_that_is_right_for_whole_tiles_alone_is_wrong(worker: WorkerContext) -> None:
    report = judged(worker, WITHOUT_REMAINDER, cases=CASES)
    assert report.outcome.status is Status.WRONG_RESULT, report.outcome.message
    assert [case["verdict"] for case in report.body("id")["cases"]] == ["passed", "passed", "wrong_result"]
