"""What is filled in by the stack is what would be set by set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from domain.contract import IOContract
from domain.dtype import ITEM_BYTES
from domain.kernel import Kernel
from domain.result import CANDIDATE
from profiling.window.call_buffers import Slots
from tasks.correctness.input_batches import SeparateSets, StackedSets
from tasks.correctness.input_source import TrialInputs
from tasks.runtime.kernel_run import KernelRun
from validation.inputs import tensor_source
from validation.inputs.contract_inputs import GROUP, ContractInputs

CALLS = GROUP + 6


@pytest.fixture(autouse=True)
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are drawn in groups on the CPU too."""
    monkeypatch.setattr(tensor_source, "PREDICTABLE", frozenset())


def tensor(name: str, shape: list[int], role: str = "input", dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": shape, "dtype": dtype, **more}}


KINDS = {
    "randn": [tensor("x", [7, 9])],
    "other mean": [tensor("x", [7, 9], init={"kind": "randn", "mean": 2.0})],
    "uniform": [tensor("x", [33], init={"kind": "uniform"})],
    "one element": [tensor("x", [1])],
    "none": [tensor("x", [3, 0])],
    "fixed": [tensor("x", [5, 4], init={"kind": "arange"}), tensor("y", [8])],
    "expanded": [tensor("x", [5, 4], strides=[1, 0], init={"kind": "ones"}), tensor("y", [8])],
    "with gaps": [tensor("x", [5, 4], strides=[8, 1], init={"kind": "full", "fill_value": 3}), tensor("y", [8])],
    "accumulator": [tensor("x", [6]), tensor("sum", [6], "inout", init={"kind": "zeros"})],
    **{dtype: [tensor("x", [5, 50], dtype=dtype)] for dtype in ITEM_BYTES},
}


def contract(arguments: list[dict[str, Any]]) -> IOContract:
    count = {"name": "n", "type": "int", "value": 3}
    wire = {"kernel_type": "cuda", "source_code": "", "io": {"args": [*arguments, count, tensor("out", [6], "output")]}}
    io = Kernel.from_wire(wire).io
    assert io is not None
    return io


def layout(inputs: ContractInputs, io: IOContract) -> Slots:
    outputs = tuple(index for index, argument in enumerate(io.args) if argument.role in ("output", "inout"))
    return Slots(CALLS, inputs.draw(0), outputs, [], "cpu", blank=(len(io.args) - 1,))


@pytest.mark.parametrize("arguments", KINDS.values(), ids=KINDS)
def test_stacked_sets_are_those_that_are_drawn_one_by_one(arguments: list[dict[str, Any]]) -> None:
    io = contract(arguments)
    one, other = ContractInputs(io, "cpu", 7), ContractInputs(io, "cpu", 7)
    by_stack, by_set = layout(one, io), layout(other, io)
    by_set.image.copy_(by_stack.image)  # Guards are random.
    first = 3
    while first < CALLS:
        numbers = one.draw_ahead(range(first, CALLS))
        assert len(numbers) == min(CALLS, 1 + GROUP * (1 + (first - 1) // GROUP)) - first or arguments == KINDS["none"]
        stack = partial(one.stack, first=first, count=len(numbers))
        StackedSets(len(numbers), {CANDIDATE: stack}).fill(CANDIDATE, by_stack, first)
        first += len(numbers)
    SeparateSets([{CANDIDATE: other.draw(number)} for number in range(3, CALLS)]).fill(CANDIDATE, by_set, 3)
    assert torch.equal(by_stack.image, by_set.image)


def test_the_first_set_and_those_with_gaps_that_are_random_come_by_themselves() -> None:
    assert list(ContractInputs(contract(KINDS["randn"]), "cpu", 7).draw_ahead(range(5))) == [0]
    gaps = contract([tensor("x", [5, 4], strides=[8, 1])])
    assert list(ContractInputs(gaps, "cpu", 7).draw_ahead(range(3, 9))) == [3]


def test_outputs_that_have_been_written_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    io = contract(KINDS["randn"])
    inputs = ContractInputs(io, "cpu", 7)
    slots, asked = layout(inputs, io), list[int]()

    def stack(position: int) -> torch.Tensor:
        asked.append(position)
        return inputs.stack(position, 1, 4)

    slots.fill_stacked(0, 4, stack)
    slots.fill_stacked(0, 4, stack)
    slots.fill_stacked(2, 4, stack)
    assert asked == [0, 2, 0, 0, 2]


def test_a_job_draws_by_the_stack_what_all_are_called_by(tmp_path: Path) -> None:
    wire = {
        "kernel_type": "torch",
        "source_code": "def kernel_fn(x):\n    return x",
        "io": {"args": [tensor("x", [64])]},
    }
    owner = KernelRun(CANDIDATE, Kernel.from_wire(wire), tmp_path)
    inputs = TrialInputs(owner, owner, "cpu", secret=7)
    assert inputs.first()[CANDIDATE][0].shape == (64,)
    drawn = list(inputs.draw(CALLS))
    assert [type(batch) for batch in drawn] == [StackedSets, StackedSets]
    assert sum(map(len, drawn)) == CALLS and inputs.summary["fresh_sets"] == CALLS + 1
