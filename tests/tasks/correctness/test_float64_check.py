"""Few elements beyond tolerance are right where float64 says so, and only there."""

from __future__ import annotations

import pytest
import torch

from domain.flags.codes import FlagCode
from domain.result import Comparison, Status
from tasks.correctness import float64_check
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import judged, kernel
from validation.compare.comparison import compare
from validation.compare.tolerance import requested

REFERENCE = """
class Model(nn.Module):
    def forward(self, a, b):
        return {output}

def get_inputs():
    return [torch.randn(64, 512).to({dtype}), torch.randn(512, 64).to({dtype})]
"""
CANDIDATE = """
class ModelNew(nn.Module):
    def forward(self, a, b):
        total = sum(a[:, k:k + 64].float() @ b[k:k + 64].float() for k in range(0, 512, 64))
        {before}
        y = total.to(torch.bfloat16)
        {more}
        return y
"""
PRODUCT = "(a.to(torch.float32) @ b.to(torch.float32)).to(torch.bfloat16)"
TIGHT = {"atol": 1e-6, "rtol": 1e-3, "matched_ratio": 0.99}
"""Tolerances of less than a unit in the last place of bfloat16, so that an element on a rounding boundary is beyond."""
UNITS_OFF = "y.view(-1).view(torch.int16)[y.abs().argmax()] += {}"
"""Puts one element that many units in the last place away from zero."""


def test_later_calls_may_differ_by_twice_the_bound_and_their_integers_by_nothing() -> None:
    tolerance = requested(1e-6, 1e-4)
    check = float64_check.Float64Check(tolerance, 0.5)
    exact = torch.linspace(1, 1.9, 64, dtype=torch.float64)
    want, index = exact.to(torch.bfloat16), torch.arange(64)

    def judged_as(units: float, moved: int, run: torch.Tensor | None) -> FlagCode | None:
        actual = [want.clone(), index.clone()]
        actual[0][5] += units * 2.0**-7
        actual[1][7] += moved
        comparison = compare([want, index], actual, tolerance)
        check.count([comparison])
        assert check.applies(comparison, [want, index], [exact])
        flag = check.check([want, index], actual, [exact], None if run is None else [run, index], lambda: 0.0)
        return None if flag is None else flag.code

    halfway = want.double() + (torch.arange(64) == 5) * 2.0**-8
    assert judged_as(1, 0, None) is FlagCode.FLOAT64_UNAVAILABLE
    assert [judged_as(1, 0, halfway) for _ in range(float64_check.MOST_RUNS)] == [None] * float64_check.MOST_RUNS
    assert not check.wants_run and judged_as(1, 0, None) is None
    assert judged_as(2, 0, None) is FlagCode.WRONG_BY_FLOAT64
    assert judged_as(1, 1, None) is FlagCode.FLOAT64_UNAVAILABLE


def compared(
    worker: WorkerContext,
    more: str = "",
    *,
    before: str = "",
    output: str = PRODUCT,
    dtype: str = "torch.bfloat16",
    **options: object,
) -> tuple[Status, Comparison]:
    reference = kernel(REFERENCE.format(output=output, dtype=dtype))
    outcome = judged(worker, kernel(CANDIDATE.format(before=before, more=more)), reference, **(TIGHT | options)).outcome
    assert outcome.comparison is not None, outcome.message
    return outcome.status, outcome.comparison


def found(comparison: Comparison) -> list[FlagCode]:
    return [flag.code for flag in comparison.beyond_tolerance]


@pytest.mark.parametrize("output", [PRODUCT, "(a.to(torch.bfloat16) @ b.to(torch.bfloat16))", "a @ b"])
def test_another_order_of_summation_is_right_and_the_result_says_what_float64_judged(
    worker: WorkerContext, output: str
) -> None:
    status, comparison = compared(worker, output=output)
    assert status is Status.PASSED and found(comparison) == [FlagCode.RIGHT_BY_FLOAT64]
    (flag,) = comparison.beyond_tolerance
    assert flag.data["reduction_length"] == 512 and flag.data["required_matched_ratio"] == 0.99
    assert 0 < flag.data["error_to_bound"] <= 1 and 0.99 < flag.data["matched_ratio"] < 1
    assert flag.data["float64_calls"] == float64_check.MOST_RUNS < flag.data["calls"]
    assert comparison.mismatch_count == 0 and comparison.first_mismatch is None
    assert comparison.strict is not None and comparison.strict["mismatch_count"] == 0


@pytest.mark.parametrize("more", [UNITS_OFF.format(1), UNITS_OFF.format(2)])
def test_one_element_that_is_a_unit_off_is_wrong(worker: WorkerContext, more: str) -> None:
    status, comparison = compared(worker, more)
    assert status is Status.WRONG_RESULT and found(comparison) == [FlagCode.WRONG_BY_FLOAT64]
    assert comparison.beyond_tolerance[0].data["error_to_bound"] > 1 and comparison.first_mismatch is not None


def test_a_reference_without_a_float64_run_decides_alone(worker: WorkerContext) -> None:
    output = PRODUCT.replace("a.to", "a.view(torch.int16).view(torch.bfloat16).to")
    status, comparison = compared(worker, output=output)
    assert status is Status.WRONG_RESULT and found(comparison) == [FlagCode.FLOAT64_UNAVAILABLE]


def test_many_elements_beyond_tolerance_are_wrong_without_a_run(worker: WorkerContext) -> None:
    status, comparison = compared(worker, "y[::2, ::2] *= 1.02")
    assert status is Status.WRONG_RESULT and not found(comparison)


def test_a_matched_ratio_of_one_asks_for_all(worker: WorkerContext) -> None:
    status, comparison = compared(worker, matched_ratio=1.0)
    assert status is Status.WRONG_RESULT and not found(comparison)


@pytest.mark.parametrize("units", [12, 20])
def test_a_float8_product_may_err_as_its_accumulator_does(worker: WorkerContext, units: int) -> None:
    """A tensor core adds 512 products in 16 steps, each of which loses at most a unit of 2**-13 of the sum."""
    error = f"total.view(-1)[total.abs().argmin()] += {units} * 2.0**-13 * total.square().mean().sqrt()"
    status, comparison = compared(worker, before=error, dtype="torch.float8_e4m3fn")
    right = units < 16
    assert found(comparison) == [FlagCode.RIGHT_BY_FLOAT64 if right else FlagCode.WRONG_BY_FLOAT64]
    assert status is (Status.PASSED if right else Status.WRONG_RESULT)
    status, comparison = compared(worker, before=error)
    assert status is Status.WRONG_RESULT and found(comparison) == [FlagCode.WRONG_BY_FLOAT64], "of bfloat16 inputs"
