"""Outputs in dicts, through the pipeline: whose values stand under which key decides, not which was filled in first."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.result import Report, Status
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import INPUTS, forward, judged, kernel

STATISTICS = "class Model(nn.Module):\n    def forward(self, x):\n        return {}" + INPUTS
MEAN, STD = "x.mean(-1)", "x.std(-1) + 3"


def answered(worker: WorkerContext, candidate: str, reference: str, **more: Any) -> Report:
    filled = [text.replace("MEAN", MEAN).replace("STD", STD) for text in (candidate, reference)]
    return judged(worker, forward(f"return {filled[0]}", more.pop("before", "")), kernel(STATISTICS.format(filled[1])))


NAMED = "{'mean': MEAN, 'std': STD}"
NESTED = "{'x': x * 2, 's': ({'mean': MEAN, 'std': STD}, None), 0: x.sum()}"


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        ("{'std': STD, 'mean': MEAN}", NAMED),
        ("{0: x.sum(), 's': [{'std': STD, 'note': None, 'mean': MEAN}], 'x': x + x}", NESTED),
        ("(MEAN, STD)", NAMED),
        (NAMED, "(MEAN, STD)"),
        ("OrderedDict(std=STD, mean=MEAN)", NAMED),
    ],
)
def test_the_same_values_under_the_same_keys_are_right(worker: WorkerContext, candidate: str, reference: str) -> None:
    report = answered(worker, candidate, reference, before="from collections import OrderedDict")
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None and report.outcome.comparison is not None
    assert report.outcome.comparison.layout == []


@pytest.mark.parametrize(
    ("candidate", "reference", "says"),
    [
        ("{'std': MEAN, 'mean': STD}", NAMED, "under its keys"),
        ("{'mean': STD, 'std': MEAN}", NAMED, "under its keys"),
        ("{'x': x * 2, 's': {'std': MEAN, 'mean': STD}, 0: x.sum()}", NESTED, "first at output 1"),
        ("(STD, MEAN)", NAMED, "right in another order"),
        ("{'mean': MEAN}", NAMED, "lacks 'std'"),
        ("{'mean': MEAN, 'sigma': STD}", NAMED, "lacks 'std' and has 'sigma'"),
        ("{'mean': MEAN, 'std': STD, 'more': x}", NAMED, "has 'more', which the reference's dict lacks"),
    ],
)
def test_values_under_other_keys_are_wrong(worker: WorkerContext, candidate: str, reference: str, says: str) -> None:
    outcome = answered(worker, candidate, reference).outcome
    assert outcome.status is Status.WRONG_RESULT and says in (outcome.message or ""), outcome.message


IN_TURN = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        mean, std = x.mean(-1), x.std(-1) + 3
        if self.calls % 3:
            return {'std': std, 'mean': mean}
        return ANSWER
"""


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("{'mean': mean, 'std': std}", Status.PASSED),
        ("{'std': mean, 'mean': std}", Status.WRONG_RESULT),
        ("{'mean': std, 'std': mean}", Status.WRONG_RESULT),
        ("{'mean': mean, 'sigma': std}", Status.WRONG_RESULT),
    ],
)
def test_each_call_is_read_by_its_own_keys(worker: WorkerContext, answer: str, status: Status) -> None:
    reference = STATISTICS.format(NAMED).replace("MEAN", MEAN).replace("STD", STD)
    outcome = judged(worker, kernel(IN_TURN.replace("ANSWER", answer)), kernel(reference)).outcome
    assert outcome.status is status, outcome.message


def test_a_view_of_an_input_is_known_by_its_key(worker: WorkerContext) -> None:
    """What is told of an output, beside its content, goes with it to its place."""
    reference = "{'turned': x.t().contiguous(), 'twice': x * 2}"
    comparison = answered(worker, "{'twice': x * 2, 'turned': x.t()}", reference).outcome.comparison
    assert comparison is not None and [(flag.code, flag.data) for flag in comparison.layout] == [
        (FlagCode.OUTPUT_LAYOUT_DIFFERS, {"output": 0})
    ]


def test_alone_a_kernel_may_use_any_keys(worker: WorkerContext) -> None:
    alone = STATISTICS.format("{'b': x * 2, object(): [x.sum()], 1: {}}")
    assert judged(worker, kernel(alone)).outcome.status is Status.PASSED
