"""A kernel that is right where its reference sums in low precision passes with a flag, and no other kernel does."""

from __future__ import annotations

import pytest
import torch

from domain.flags.codes import FlagCode
from domain.result import Comparison, Status
from tasks.correctness.reference_error_check import ReferenceErrorCheck
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import judged, kernel
from validation.compare.result import CallComparison
from validation.compare.tolerance import requested

SUMS = """
class Model(nn.Module):
    def forward(self, g):
        total = torch.zeros_like(g[0])
        for row in g:
            total = total + row
        return {output}

def get_inputs():
    return [torch.randn(96, 64, 8).to(torch.bfloat16) * 4 + 3]
"""
KERNEL = """
class ModelNew(nn.Module):
    def forward(self, g):
        y = g.float().sum(0)
        {before}
        y = y.to(torch.bfloat16)
        {after}
        return y
"""
EMBEDDING = """
class Model(nn.Module):
    def forward(self, w, i):
        return torch.nn.functional.embedding(i, w)

def get_inputs():
    return [torch.randn(16, 64).to(torch.bfloat16).requires_grad_(), torch.randint(16, (1024,))]
"""
EMBEDDING_IN_FLOAT32 = """
class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, i):
        ctx.save_for_backward(i)
        return w[i]

    @staticmethod
    def backward(ctx, g):
        return torch.zeros(16, 64).index_add(0, ctx.saved_tensors[0], {rows}).to(g.dtype), None

class ModelNew(nn.Module):
    def forward(self, w, i):
        return Rows.apply(w, i)
"""


def compared(
    worker: WorkerContext, *, output: str = "total", before: str = "", after: str = "", **more: object
) -> tuple[Status, Comparison]:
    candidate = kernel(KERNEL.format(before=before, after=after))
    outcome = judged(worker, candidate, kernel(SUMS.format(output=output)), atol=None, rtol=None, **more).outcome
    assert outcome.comparison is not None, outcome.message
    return outcome.status, outcome.comparison


def found(comparison: Comparison) -> list[FlagCode]:
    return [flag.code for flag in comparison.beyond_tolerance]


@pytest.mark.parametrize("output", ["total", "total.to(torch.bfloat16)"])
def test_a_sum_in_float32_is_right_beside_one_in_bfloat16_and_the_result_says_so(
    worker: WorkerContext, output: str
) -> None:
    status, comparison = compared(worker, output=output)
    assert status is Status.PASSED, comparison.message
    (flag,) = [one for one in comparison.beyond_tolerance if one.code is FlagCode.REFERENCE_LESS_EXACT]
    assert flag.data["elements"] > 100 and 0.01 < flag.data["reference_error"] < 1
    assert comparison.strict is not None and comparison.strict["mismatch_count"] > 100


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "y.view(-1).view(torch.int16)[77] += 2"),
        ("y = y - g[-1].float()", ""),
        ("y = y * 1.01", ""),
        ("y = torch.zeros_like(g[0])\n        for row in g.flip(0): y = y + row", ""),
        ("y = y.half().float(); y = g.half().cumsum(0)[-1].float() * 0.99", ""),
    ],
)
def test_a_kernel_that_errs_itself_is_wrong(worker: WorkerContext, before: str, after: str) -> None:
    status, comparison = compared(worker, before=before, after=after)
    assert status is Status.WRONG_RESULT and FlagCode.REFERENCE_LESS_EXACT not in found(comparison)


@pytest.mark.parametrize(
    "output",
    [
        "(total.float() * 8).to(torch.bfloat16).float().sub(1024).to(torch.bfloat16)",  # The cast is part of the task.
        "(total.float() / 16).round() * 16",
        "(total.float() / 16).to(torch.float8_e4m3fn).to(torch.bfloat16) * 16",
    ],
)
def test_a_kernel_that_leaves_a_quantisation_out_is_wrong(worker: WorkerContext, output: str) -> None:
    more = "y = y * 8 - 1024" if "1024" in output else ""
    status, comparison = compared(worker, output=output, before=more)
    assert status is Status.WRONG_RESULT and FlagCode.REFERENCE_LESS_EXACT not in found(comparison)


def test_a_matched_ratio_of_one_asks_for_all(worker: WorkerContext) -> None:
    status, _ = compared(worker, matched_ratio=1.0)
    assert status is Status.WRONG_RESULT


@pytest.mark.parametrize(("rows", "right"), [("g.float()", True), ("g.float() * 1.1", False)])
def test_an_embedding_gradient_in_float32_is_right(worker: WorkerContext, rows: str, right: bool) -> None:
    candidate = kernel(EMBEDDING_IN_FLOAT32.format(rows=rows))
    outcome = judged(worker, candidate, kernel(EMBEDDING), gradients=True, atol=None, rtol=None).outcome
    assert outcome.comparison is not None, outcome.message
    assert outcome.status is (Status.PASSED if right else Status.WRONG_RESULT), outcome.message
    assert (FlagCode.REFERENCE_LESS_EXACT in found(outcome.comparison)) is right


def test_a_float64_run_of_other_shapes_excuses_nothing() -> None:
    check = ReferenceErrorCheck(requested(None, None), 0.99)
    low, rows = torch.ones(8, dtype=torch.bfloat16), torch.arange(8)
    exact = [low.double(), rows[:4]]
    comparison = CallComparison(requested(None, None), element_count=16, mismatch_count=1)
    assert not check.excuses(comparison, [low, rows], [low, rows + 1], 8, exact, lambda: exact)
