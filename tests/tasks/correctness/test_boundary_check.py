"""Two right kernels land on either side of a jump now and then; a wrong one lands where the reference never does."""

from __future__ import annotations

import pytest

from domain.flags.codes import FlagCode
from domain.result import Report, Status
from tasks.correctness import boundary_check
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import judged, kernel

MODEL = """
class {name}(nn.Module):
    def forward(self, x):
        return {levels}.clamp(-128, 127).to(torch.int8)
"""
REFERENCE = (
    MODEL.format(name="Model", levels="torch.round(x / 0.05)")
    + """
def get_inputs():
    x = torch.randn(64, 64)
    if torch.rand(()) < 0.1:  # In some calls, as each that is excused takes 25 ms on a slow host, of 15 s for all.
        x.view(-1)[:2] = (torch.randint(-40, 40, (2,)) + 0.5) * 0.05  # Where 20 and 1 / 0.05 do not agree.
    return [x]
"""
)


def quantised(worker: WorkerContext, levels: str, reference: str = REFERENCE) -> Report:
    return judged(worker, kernel(MODEL.format(name="ModelNew", levels=levels)), kernel(reference))


def test_a_quantiser_that_rounds_its_scale_differently_is_right_and_it_is_said(worker: WorkerContext) -> None:
    outcome = quantised(worker, "torch.round(x * 19.999998)").outcome
    assert outcome.status is Status.PASSED and outcome.comparison is not None and outcome.timing is not None
    assert outcome.comparison.mismatch_count == 0 and outcome.comparison.first_mismatch is None
    assert outcome.comparison.strict is not None and outcome.comparison.strict["mismatch_count"] > 0
    assert codes(outcome.timing.flags).count(FlagCode.ROUNDING_DECIDES) == 1


@pytest.mark.parametrize(
    "levels",
    [
        "torch.round(x * 20.0 + 0.02)",  # Half a level off, now and then.
        "torch.round(x * 19.999998).where(x != x.max(), 7.0)",  # One element a call.
        "torch.round(x * 19.999998).where(x.abs() > 1e-3, 1.0)",  # A few near zero.
    ],
)
def test_a_few_wrong_elements_are_wrong(worker: WorkerContext, levels: str) -> None:
    outcome = quantised(worker, levels).outcome
    assert outcome.status is Status.WRONG_RESULT and outcome.comparison is not None
    assert outcome.comparison.first_mismatch is not None


def test_without_time_for_it_an_answer_stays_wrong(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary_check, "BUDGET_S", 0.0)
    assert quantised(worker, "torch.round(x * 19.999998)").outcome.status is Status.WRONG_RESULT


def test_a_reference_that_cannot_be_run_in_float64_excuses_nothing_and_is_not_blamed(worker: WorkerContext) -> None:
    reference = REFERENCE.replace("(x / 0.05)", "(x.view(torch.int32).view(torch.float32) / 0.05)")
    assert quantised(worker, "torch.round(x * 19.999998)", reference).outcome.status is Status.WRONG_RESULT


@pytest.mark.parametrize(
    ("candidate", "status"), [("(x >= 0).float()", Status.PASSED), ("(x >= -2e-2).float()", Status.WRONG_RESULT)]
)
def test_to_which_side_zero_belongs_is_rounding_too(worker: WorkerContext, candidate: str, status: Status) -> None:
    source = "class {}(nn.Module):\n    def forward(self, x):\n        return {}\n"
    zero = "x[5, 7] = 0.0 if torch.rand(()) < 0.1 else 1.0"
    with_a_zero = f"def get_inputs():\n    x = torch.randn(64, 64)\n    {zero}\n    return [x]\n"
    reference = kernel(source.format("Model", "(x > 0).float()") + with_a_zero)
    outcome = judged(worker, kernel(source.format("ModelNew", candidate)), reference).outcome
    assert outcome.status is status and outcome.comparison is not None, outcome.message
    assert outcome.comparison.strict is not None and outcome.comparison.strict["mismatch_count"] > 0


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [("x.sqrt()", "x * x.rsqrt()"), ("torch.xlogy(x, x)", "x * x.log()")],
)
def test_what_leaves_the_functions_domain_is_no_jump(worker: WorkerContext, reference: str, candidate: str) -> None:
    source = "class {}(nn.Module):\n    def forward(self, x):\n        return {}\n"
    with_a_zero = "def get_inputs():\n    x = torch.rand(64, 64)\n    x[5, 7] = 0.0\n    return [x]\n"
    owner = kernel(source.format("Model", reference) + with_a_zero)
    outcome = judged(worker, kernel(source.format("ModelNew", candidate)), owner).outcome
    assert outcome.status is Status.WRONG_RESULT, outcome.message


FLOAT4 = """
class {name}(nn.Module):
    def forward(self, x):
        blocks = x.float().unflatten(-1, (-1, 16))
        scales = (blocks.abs().amax(-1, keepdim=True) / 6).to(torch.float8_e4m3fn)
        sizes = {quotient}
        ends = torch.tensor([{ends}], dtype=sizes.dtype)
        codes = (torch.bucketize(sizes.abs(), ends) + 8 * (sizes < 0)).to(torch.uint8).flatten(-2)
        return (codes[..., ::2] | codes[..., 1::2] << 4).view(torch.float4_e2m1fn_x2), scales.squeeze(-1)
"""
ENDS = "0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5"


@pytest.mark.parametrize(
    ("quotient", "ends", "status"),
    [
        ("blocks * scales.float().reciprocal()", ENDS, Status.PASSED),
        ("blocks * scales.float().reciprocal()", ENDS.replace("3.5", "3.52"), Status.WRONG_RESULT),
        ("(blocks / scales.float()).where(blocks.abs() != 0.5, 2.0)", ENDS, Status.WRONG_RESULT),
    ],
)
def test_a_quantiser_may_break_exact_ties_either_way(
    worker: WorkerContext, quotient: str, ends: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in 400 numbers of bfloat16 lies half-way between two of float4, and a reciprocal rounds it off there."""
    monkeypatch.setattr(boundary_check, "BUDGET_S", 60.0)  # A busy host excuses fewer calls in 15 s.
    inputs = "def get_inputs():\n    return [torch.randn(64, 512, dtype=torch.bfloat16)]\n"
    reference = kernel(FLOAT4.format(name="Model", quotient="blocks / scales.float()", ends=ENDS) + inputs)
    candidate = kernel(FLOAT4.format(name="ModelNew", quotient=quotient, ends=ends))
    outcome = judged(worker, candidate, reference, timeout=120).outcome
    assert outcome.status is status and outcome.comparison is not None, outcome.message
    assert outcome.comparison.strict is not None
    assert outcome.comparison.strict["mismatch_count"] > 1e-3 * outcome.comparison.element_count


def test_beside_gradients_no_more_outputs_may_be_wrong(worker: WorkerContext) -> None:
    """A threshold that is off by a step of bfloat16, in 1.4 elements of a thousand, is no exact tie."""
    inputs = "def get_inputs():\n    return [torch.randn(64, 512, dtype=torch.bfloat16, requires_grad=True)]\n"
    source = "class {}(nn.Module):\n    def forward(self, x):\n        return x * (x > {})\n"
    reference = kernel(source.format("Model", 0.5) + inputs)
    outcome = judged(worker, kernel(source.format("ModelNew", 0.505)), reference, gradients=True).outcome
    assert outcome.status is Status.WRONG_RESULT and outcome.comparison is not None
    assert outcome.comparison.calls_passed == 0
