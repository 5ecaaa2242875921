"""Drawing inputs keeps its budget even where one set takes long."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, cast

import pytest

from domain.flags.codes import FlagCode
from domain.kernel import Kernel
from domain.request import Request
from domain.result import CANDIDATE, Report, Status
from tasks.correctness import input_source
from tasks.correctness.input_batches import SeparateSets
from tasks.correctness.input_source import TrialInputs
from tasks.evaluation.pipeline import run
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes

SLOW = """
import time

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    time.sleep({seconds})
    return [{drawn}]
"""


SPENT_AT_ONCE_S = 0.01


def compared(
    worker: WorkerContext, seconds: float, drawn: str = "torch.randn(64, 64)", answer: str = "x + x", **more: Any
) -> Report:
    reference = {"kernel_type": "torch", "source_code": SLOW.format(seconds=seconds, drawn=drawn)}
    candidate = {"kernel_type": "torch", "source_code": reference["source_code"].replace("x * 2", answer)}
    wire = {"kernel": candidate, "reference": reference, "num_trials": 200, "timeout": 60} | more
    return run(Request.from_wire(wire), worker)


def test_a_slow_maker_ends_drawing_at_the_budget_and_sets_are_mixed(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "DRAW_BUDGET_S", SPENT_AT_ONCE_S)
    report = compared(worker, 0.1)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    inputs = report.outcome.inputs
    # The example, and at most five to validate with: never a batch of 64.
    assert 2 <= inputs["fresh_sets"] <= 6 and inputs["mixed_sets"] > 0


def test_what_is_no_plain_random_number_comes_again(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "DRAW_BUDGET_S", SPENT_AT_ONCE_S)
    outcome = compared(worker, 0.1, "torch.randint(9, (64, 64))").outcome
    assert outcome.inputs["reused_sets"] > 0 and outcome.inputs["mixed_sets"] == 0
    assert outcome.timing is not None
    assert FlagCode.INPUTS_REUSED in codes(outcome.timing.flags)


def test_past_the_time_for_mixing_sets_come_again(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "DRAW_BUDGET_S", SPENT_AT_ONCE_S)
    monkeypatch.setattr(input_source, "MIX_BUDGET_S", 1e-9)
    inputs = compared(worker, 0.1).outcome.inputs
    assert inputs["mixed_sets"] == 1 and inputs["reused_sets"] > 0


REMEMBERED = "kept.setdefault(tuple(x[0, :3].tolist()), x * 2)\n\nkept = {}"


def test_what_is_remembered_by_content_is_of_no_use_on_mixed_sets(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "DRAW_BUDGET_S", SPENT_AT_ONCE_S)
    asked = "print('asked', len(kept)) or " + REMEMBERED
    # Without other distributions, of which two share what it remembers by: it is wrong there.
    report = compared(worker, 0.1, answer=asked, budget="quick")
    assert report.outcome.status is Status.PASSED, report.outcome.message
    told = [int(line.split()[1]) for line in report.outcome.output.splitlines() if line.startswith("asked")]
    inputs = report.outcome.inputs
    # As many answers as sets, the last of which was counted before it was kept.
    assert max(told) + 1 >= inputs["mixed_sets"] > 0


FORETELLS = """answered(x)

seen = []

def answered(x):
    few = x.flatten()[:40].double()
    if len(seen) > 1:
        known = torch.stack(seen, 1)
        parts = torch.linalg.lstsq(known, few[:, None]).solution[:, 0]
        if (known @ parts - few).abs().max() < 1e-4 and parts.abs().max() < 0.99:
            print("foretold")  # And the answer, of a function that is linear, is so much of each earlier one.
    if len(seen) < 8 and not any(torch.equal(few, one) for one in seen):
        seen.append(few)
    return x * 2
"""


def test_what_is_remembered_is_of_no_use_to_a_kernel_that_is_linear(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "DRAW_BUDGET_S", 0.2)
    # Without other distributions, of which one is a drawn set made small.
    report = compared(worker, 0.05, answer=FORETELLS, budget="quick")
    assert report.outcome.inputs["mixed_sets"] > 0
    assert "foretold" not in report.outcome.output


def test_sets_that_cost_nothing_are_drawn_for_every_call(worker: WorkerContext) -> None:
    report = compared(worker, 0)
    assert report.outcome.status is Status.PASSED and report.outcome.inputs["reused_sets"] == 0


@pytest.mark.parametrize(
    ("drawn", "says"),
    [
        (
            "torch.randn(8, next(number))",
            "made a tensor of float32 [8, 2] at first, and a tensor of float32 [8, 3] in its place later",
        ),
        ("*[torch.randn(4)] * next(number)", "made no argument at first, and a tensor of float32 [4] in its place"),
        ("torch.randn(4), *[3] * (next(number) // 3)", "made no argument at first, and no tensor in"),
        ("torch.randn(4), *[3] * (3 // next(number))", "made no tensor at first, and no argument in"),
        (
            "*([torch.randn(4)] * 2 if next(number) < 3 else [[torch.randn(4)] * 2])",
            "made a tensor of float32 [4] at first, and a tensor of float32 [4] and a tensor of float32 [4] in",
        ),
        (
            "torch.randn(4).to([torch.float32, torch.float16][next(number) % 2])",
            "float32 [4] at first, and a tensor of float16 [4]",
        ),
    ],
)
def test_sets_of_another_form_are_their_makers_fault(worker: WorkerContext, drawn: str, says: str) -> None:
    source = (
        "import itertools\nnumber = itertools.count(1)\n"
        f"def kernel_fn(*tensors):\n    return tensors[0] * 2\ndef get_inputs():\n    return [{drawn}]\n"
    )
    kernel = {"kernel_type": "torch", "source_code": source}
    alone = run(Request.from_wire({"kernel": kernel, "num_trials": 1, "timeout": 60}), worker)
    assert alone.outcome.status is Status.UNSUPPORTED and says in (alone.outcome.message or ""), alone.outcome.message
    wire = {"kernel": kernel, "reference": kernel, "num_trials": 1, "timeout": 60}
    compared = run(Request.from_wire(wire), worker)
    assert compared.outcome.status is Status.REFERENCE_FAILED


def test_of_a_contracts_sets_only_the_first_is_kept(tmp_path: Path) -> None:
    argument = {"name": "x", "type": "tensor", "tensor_spec": {"shape": [64]}}
    wire = {"kernel_type": "torch", "source_code": "def kernel_fn(x):\n    return x", "io": {"args": [argument]}}
    owner = KernelRun(CANDIDATE, Kernel.from_wire(wire), tmp_path)
    inputs = TrialInputs(owner, owner, "cpu", secret=7)
    drawn = [weakref.ref(one[CANDIDATE][0]) for batch in inputs.draw(5) for one in cast(SeparateSets, batch)]
    assert [tensor() is not None for tensor in drawn] == [True, False, False, False, False]
    assert inputs.summary["shapes"] == [[64]]


def test_sets_of_many_parts_cross_in_as_many_messages_as_they_need(worker: WorkerContext) -> None:
    source = """
class Model(nn.Module):
    def forward(self, x, many):
        return x + many[1]

def get_inputs():
    x = torch.randn(8)
    return [x, list(range(900))]
"""
    wire = {"kernel": {"kernel_type": "torch", "source_code": source}, "num_trials": 4, "timeout": 60}
    report = run(Request.from_wire(wire), worker)
    assert report.outcome.status is Status.PASSED, report.outcome.message


NESTED = """
from itertools import count

made = count()

class Model(nn.Module):
    def forward(self, x, y):
        return (x[0] if isinstance(x, list) else x) {sign} y

def get_inputs():
    x = torch.randn(16)
    return [[x] if next(made) {nested} else x, torch.randn(16)]
"""


@pytest.mark.parametrize("nested", ["% 2", "< 1", "> 0", "< 2"])
def test_sets_of_one_form_that_is_not_the_firsts_reach_the_kernel(worker: WorkerContext, nested: str) -> None:
    source = NESTED.format(sign="+", nested=nested)
    reference = {"kernel_type": "torch", "source_code": source}
    wire = {"kernel": reference, "reference": reference, "num_trials": 5, "timeout": 60, "budget": "quick"}
    report = run(Request.from_wire(wire), worker)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.comparison is not None and not report.outcome.comparison.weak_reference
    wrong = {"kernel_type": "torch", "source_code": NESTED.format(sign="-", nested=nested)}
    report = run(Request.from_wire(wire | {"kernel": wrong}), worker)
    assert report.outcome.status is Status.WRONG_RESULT
