"""A candidate whose output has another form than its reference's is wrong; alone, such a form is unsupported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import INPUTS, judged, kernel

RELU = kernel("def kernel_fn(x):\n    return torch.relu(x)" + INPUTS)
IMITATION = """
class Answer:
    def __init__(self, like):
        self.shape, self.dtype, self.device = like.shape, like.dtype, like.device
    def __getattr__(self, name):
        return lambda *args, **kwargs: self
"""
UNREADABLE = {
    "an object": "Answer(x)",
    "a generator": "(row for row in torch.relu(x))",
    "a module": "torch",
    "a function": "torch.relu",
    "a class": "Answer",
    "a set": "{1, 2}",
    "an object in a tuple": "(torch.relu(x), Answer(x))",
    "an object in a dict": "{'y': Answer(x)}",
    "a sparse tensor": "torch.relu(x).to_sparse()",
    "a compressed tensor": "torch.relu(x).to_sparse_csr()",
    "a nested tensor": "torch.nested.nested_tensor([torch.relu(x)])",
    "a quantized tensor": "torch.quantize_per_tensor(torch.relu(x), 0.1, 0, torch.qint8)",
    "numpy objects": "__import__('numpy').array([None, x], dtype=object)",
    "numpy text": "__import__('numpy').array(['a', 'b'])",
    "a numpy date": "__import__('numpy').datetime64('2020-01-01')",
    "a number too large": "10**30",
    "itself": "endless(x)",
}
NOTHING = {"None": "None", "a text": "'done'", "bytes": "b'done'", "an empty tuple": "()", "Nones": "(None, [None])"}
ENDLESS = "\ndef endless(x):\n    found = [x]; found.append(found)\n    return found\n"


def returning(output: str) -> dict[str, Any]:
    return kernel(f"{IMITATION}{ENDLESS}\ndef kernel_fn(x):\n    return {output}{INPUTS}")


@pytest.mark.parametrize("name", UNREADABLE)
def test_beside_a_reference_it_is_wrong_and_alone_unsupported(name: str, worker: WorkerContext) -> None:
    odd = returning(UNREADABLE[name])
    outcome = judged(worker, odd, RELU).outcome
    assert outcome.status is Status.WRONG_RESULT, outcome.message
    assert outcome.message is not None and "another form than the reference's" in outcome.message
    assert outcome.timing is None
    json.dumps(judged(worker, odd, RELU).body("j"))
    assert judged(worker, odd).outcome.status is Status.UNSUPPORTED


@pytest.mark.parametrize("name", ["an object", "a sparse tensor", "a number too large"])
def test_a_reference_with_such_an_output_has_failed(name: str, worker: WorkerContext) -> None:
    report = judged(worker, RELU, returning(UNREADABLE[name]))
    assert report.reference is not None and report.reference.status is Status.UNSUPPORTED
    assert report.outcome.status is Status.REFERENCE_FAILED
    both = judged(worker, returning(UNREADABLE[name]), returning(UNREADABLE[name]))
    assert both.outcome.status is Status.REFERENCE_FAILED


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_a_wrong_output(name: str, worker: WorkerContext) -> None:
    assert judged(worker, returning(NOTHING[name]), RELU).outcome.status is Status.WRONG_RESULT
    assert judged(worker, RELU, returning(NOTHING[name])).outcome.status is Status.REFERENCE_FAILED


@pytest.mark.parametrize(
    "output", ["[torch.relu(x)]", "(torch.relu(x),)", "{'y': torch.relu(x)}", "torch.relu(x).numpy()"]
)
def test_forms_that_hold_the_same_tensors_pass(output: str, worker: WorkerContext) -> None:
    outcome = judged(worker, returning(output), RELU).outcome
    assert outcome.status is Status.PASSED, outcome.message


LATER = (
    "calls = []\ndef kernel_fn(x):\n    calls.append(1)\n    return torch.relu(x) if len(calls) < {} else {}" + INPUTS
)


@pytest.mark.parametrize("output", ["object()", "torch.relu(x)[:3]", "(x, x)", "None", "'no'"])
@pytest.mark.parametrize("calls", [6, 12])
def test_an_output_that_changes_its_form_in_a_later_call_is_wrong(
    calls: int, output: str, worker: WorkerContext
) -> None:
    changing = kernel(LATER.format(calls, output))
    assert judged(worker, changing, RELU).outcome.status is Status.WRONG_RESULT


def test_who_is_compared_with_a_reference_of_changing_shapes_is_not_blamed(worker: WorkerContext) -> None:
    shapes = kernel("def kernel_fn(x):\n    return x[x > 0]" + INPUTS)
    assert judged(worker, shapes, shapes).outcome.status is Status.REFERENCE_FAILED
    assert judged(worker, shapes).outcome.status is Status.UNSUPPORTED
