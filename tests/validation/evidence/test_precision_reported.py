"""Errors that pass at the default tolerance and no rounding explains, through the real pipeline on the CPU."""

from __future__ import annotations

import pytest

from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext

FUNCTION = "def kernel_fn(x):\n    return {}\ndef get_inputs():\n    return [torch.rand({})]\n"


@pytest.mark.parametrize(
    ("shape", "reference", "candidate", "error"),
    [
        ("64, 64", "x * 0.03", "x * 0.036", "0.2"),
        ("64, 20", "x.var(-1)", "x.var(-1, unbiased=False)", "0.05"),
        ("4, 20", "x.var(-1)", "x.var(-1, unbiased=False)", "0.05"),
        ("64, 64", "x * 0.03", "x * 3 / 100", None),
        ("64, 16", "x.var(-1)", "(x - x.mean(-1, keepdim=True)).square().sum(-1) / 15", None),
        ("64, 16", "(x - x.mean(-1, keepdim=True)).sum(-1)", "x.sum(-1) - x.mean(-1) * 16", None),
    ],
)
def test_what_passes_as_its_values_are_small_is_told(
    worker: WorkerContext, shape: str, reference: str, candidate: str, error: str | None
) -> None:
    wire = {
        "kernel": {"kernel_type": "torch", "source_code": FUNCTION.format(candidate, shape)},
        "reference": {"kernel_type": "torch", "source_code": FUNCTION.format(reference, shape)},
        "num_trials": 1,
        "atol": 1e-2,
        "rtol": 1e-2,
        "timeout": 60,
    }
    outcome = run(Request.from_wire(wire), worker).outcome
    assert outcome.status is Status.PASSED and outcome.comparison is not None, outcome.message
    precision = outcome.comparison.precision_check
    if error is None:  # Of sums that are zero in float64 there is none at all.
        assert precision is None or precision["finding"] is None
    else:
        assert precision is not None and precision["suspected_dtype"] is None
        assert precision["finding"]["code"] == FlagCode.UNEXPLAINED_ERROR
        assert f"is {error} of the values" in precision["finding"]["message"]


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_outputs_that_went_through_a_coarser_format_are_told(worker: WorkerContext, dtype: str) -> None:
    coarser = {"float16": "bfloat16", "float8_e4m3fn": "float8_e5m2"}[dtype]
    computed = "(x * 1.3).to(torch.{})"
    through = computed.format(coarser) + f".float().to(torch.{dtype})"
    for candidate, is_honest in ((through, False), (computed.format(dtype), True)):
        wire = {
            "kernel": {"kernel_type": "torch", "source_code": FUNCTION.format(candidate, "64, 64")},
            "reference": {"kernel_type": "torch", "source_code": FUNCTION.format(computed.format(dtype), "64, 64")},
            "num_trials": 1,
            "timeout": 60,
        }
        outcome = run(Request.from_wire(wire), worker).outcome
        assert outcome.comparison is not None, outcome.message
        suspected = (outcome.comparison.precision_check or {}).get("suspected_dtype")
        if is_honest:
            assert outcome.status is Status.PASSED and suspected is None, outcome.message
        else:
            assert suspected == coarser or outcome.status is Status.WRONG_RESULT
