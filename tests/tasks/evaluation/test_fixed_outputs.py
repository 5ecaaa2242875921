"""Problems that outputs fixed beforehand would pass, and honest ones near them."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.result import Report, Status
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.tasks.judging import judged, kernel

MODEL = """
import torch, torch.nn as nn
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}
    def forward(self, x):
        return {answer}
def get_inputs():
    return [{inputs}]
"""
NORMAL = "torch.randn(16, 512)"
KEPT = """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}
        self.kept = None
    def forward(self, x):
        if self.kept is None:
            self.kept = {answer}
        return self.kept.clone()
"""


def model(answer: str, layers: str = "pass", inputs: str = NORMAL, name: str = "Model") -> str:
    return MODEL.format(answer=answer, layers=layers, inputs=inputs, name=name)


def against(worker: WorkerContext, source: str, reference: str, **request: Any) -> Report:
    """Judged at the default tolerance."""
    return judged(worker, kernel(source), kernel(reference), atol=None, rtol=None, **request)


def is_flagged(report: Report) -> bool:
    """Whether comparison and time have the flag; never only one of them."""
    comparison, timing = report.outcome.comparison, report.outcome.timing
    assert comparison is not None and timing is not None, report.outcome.message
    in_comparison, in_time = (
        FlagCode.FIXED_OUTPUTS_PASS in codes(each) for each in (comparison.weak_reference, timing.flags)
    )
    assert in_comparison is in_time
    return in_comparison


CONSTANT = {
    "a group norm's mean, until its weights change": ("self.norm(x).mean(1)", "self.norm = nn.GroupNorm(4, 512)"),
    "a bias alone": ("x * 0 + self.bias", "self.bias = nn.Parameter(torch.randn(512))"),
    "softmax over one element": ("torch.softmax(self.first(x), dim=1) * 2", "self.first = nn.Linear(512, 1)"),
    "a maximum less its mean": (
        "self.first(x).amax(1, True) - self.first(x).amax(1, True).mean(1, True)",
        "self.first = nn.Linear(512, 8)",
    ),
    "a clamp to nothing": (
        "torch.clamp(torch.minimum(self.first(x), torch.tensor(0.0)), 0.0, 1.0)",
        "self.first = nn.Linear(512, 8)",
    ),
}


@pytest.mark.parametrize(("answer", "layers"), CONSTANT.values(), ids=CONSTANT)
def test_a_constant_by_mathematics_is_flagged(worker: WorkerContext, answer: str, layers: str) -> None:
    reference = model(answer, layers)
    for source in (model(answer, layers, name="ModelNew"), KEPT.format(answer=answer, layers=layers)):
        report = against(worker, source, reference)
        assert report.outcome.status is Status.PASSED and is_flagged(report)


NOT_FIXED = {
    "softmax over many, below the tolerance": "torch.softmax(0.1 * x, dim=1)",
    "a mean beside a constant": "1 + 0.05 * x.mean(1)",
    "a term that the tolerance hides": "100 + 0.15 * x",
    "a sign of a mean": "torch.sign(1 + 0.2 * x.mean(1))",
}


@pytest.mark.parametrize("answer", NOT_FIXED.values(), ids=NOT_FIXED)
def test_what_changes_with_other_inputs_is_not(worker: WorkerContext, answer: str) -> None:
    reference = model(answer)
    report = against(worker, model(answer, name="ModelNew"), reference)
    assert report.outcome.status is Status.PASSED and not is_flagged(report)
    kept = against(worker, KEPT.format(answer=answer, layers="pass"), reference)
    # Inputs that change the outputs may lie beyond the task: then fixed outputs pass with a flag.
    timing = kept.outcome.timing
    fails_beyond = timing is not None and FlagCode.ROBUSTNESS_FAILED in codes(timing.flags)
    assert kept.outcome.status is Status.WRONG_RESULT or fails_beyond, "fixed outputs are told"


def test_a_budget_without_other_inputs_decides_by_those_drawn(worker: WorkerContext) -> None:
    answer = NOT_FIXED["a mean beside a constant"]
    quick = against(worker, KEPT.format(answer=answer, layers="pass"), model(answer), budget="quick")
    assert quick.outcome.status is Status.PASSED and is_flagged(quick)


def test_one_output_of_two_that_is_fixed_leaves_the_other_s_work(worker: WorkerContext) -> None:
    answer = "(x * 2, torch.zeros(4))"
    report = against(worker, model(answer, name="ModelNew"), model(answer))
    assert report.outcome.comparison is not None and not is_flagged(report)
    assert codes(report.outcome.comparison.weak_reference) == [FlagCode.TRIVIAL_OUTPUT_PASSES]


def test_of_several_cases_the_one_that_fixed_outputs_pass_is_named(worker: WorkerContext) -> None:
    answer = "torch.softmax(x, 1)"
    reference = model(answer, inputs="torch.randn(16, d)").replace("get_inputs():", "get_inputs(d):")
    cases = [{"name": name, "arguments": {"d": d}} for name, d in (("wide", 300), ("single", 1))]
    report = against(worker, model(answer, name="ModelNew"), reference, cases=cases)
    comparison = report.outcome.comparison
    assert report.outcome.status is Status.PASSED and comparison is not None and is_flagged(report)
    assert {flag.message.rpartition(" (")[2] for flag in comparison.weak_reference} == {"in case 'single')"}
