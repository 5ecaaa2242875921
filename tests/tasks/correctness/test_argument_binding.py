"""What kernel runs are called with is the same by the stack as set by set, whoever has a contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from domain.contract import IOContract
from domain.kernel import Kernel
from domain.result import CANDIDATE, REFERENCE
from profiling.window.call_buffers import Slots
from sandbox.protocol.arena import describe
from sandbox.protocol.stacked_values import StackedValues
from tasks.correctness.argument_binding import ArgumentBinder
from tasks.correctness.input_batches import SeparateSets, StackedSets
from tasks.runtime.kernel_run import KernelRun
from validation.inputs import tensor_source
from validation.inputs.contract_inputs import ContractInputs

CALLS = 6
NUMBERS = range(3, 3 + CALLS)


@pytest.fixture(autouse=True)
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are drawn in groups on the CPU too."""
    monkeypatch.setattr(tensor_source, "PREDICTABLE", frozenset())


def tensor(name: str, shape: list[int], role: str = "input", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": shape, "dtype": "float32", **more}}


X, Y, OUT = tensor("x", [5, 4]), tensor("y", [8]), tensor("out", [6], "output")
N = {"name": "n", "type": "int", "value": 3}
BLOCK = {"name": "BLOCK", "type": "int", "value": 64, "is_meta": True}
SUM = tensor("sum", [6], "inout", init={"kind": "zeros"})
RANDOM_OUT = tensor("noise", [6], "output", init={"kind": "randn"})


def kernel_run(role: str, arguments: list[dict[str, Any]] | None, folder: Path) -> KernelRun:
    io = {"io": {"args": arguments}} if arguments is not None else {}
    return KernelRun(role, Kernel.from_wire({"kernel_type": "torch", "source_code": ""} | io), folder)


def filled(layout: Slots, like: Slots, sets: SeparateSets | StackedSets, role: str) -> torch.Tensor:
    layout.image.copy_(like.image)  # Guards are random.
    sets.fill(role, layout, 0)
    return layout.image


def layouts(one: KernelRun, example: list[Any]) -> tuple[Slots, Slots, Slots]:
    io = one.kernel.io
    outputs = [] if io is None else [at for at, argument in enumerate(io.args) if argument.role in ("output", "inout")]
    blank = () if io is None else tuple(at for at in outputs if io.args[at].is_blank)
    first, second, third = (Slots(CALLS, example, tuple(outputs), [], "cpu", blank=blank) for _ in range(3))
    return first, second, third


def assert_alike(binder: ArgumentBinder, sides: list[KernelRun], singly: list[list[Any]], stacked: StackedSets) -> None:
    sets = [binder.bind(drawn, number) for number, drawn in zip(NUMBERS, singly, strict=True)]
    assert len(stacked) == len(sets)
    for side in sides:
        like, one, other = layouts(side, sets[0][side.role])
        by_set = filled(one, like, SeparateSets(sets), side.role)
        assert torch.equal(by_set, filled(other, like, stacked, side.role)), side.role
        assert side.kernel.io is not None or not torch.equal(by_set, like.image)


def made_by_a_source(*shapes: list[int]) -> StackedValues:
    stacks = [torch.randn(CALLS, *shape) for shape in shapes]
    return StackedValues([*(describe(stack[0]) for stack in stacks), 7], stacks, CALLS)


CANDIDATES: dict[str, list[dict[str, Any]] | None] = {
    "none": None,
    "as the source": [X, Y, N, OUT],
    "other names and places": [N, OUT, tensor("b", [5, 4]), BLOCK, tensor("c", [8])],
    "other strides": [tensor("x", [5, 4], strides=[1, 5]), tensor("y", [8], strides=[2]), OUT],
    "an accumulator": [X, Y, SUM],
}


@pytest.mark.parametrize("arguments", CANDIDATES.values(), ids=CANDIDATES)
def test_of_what_a_source_makes(arguments: list[dict[str, Any]] | None, tmp_path: Path) -> None:
    sides = [kernel_run(REFERENCE, None, tmp_path), kernel_run(CANDIDATE, arguments, tmp_path)]
    io = sides[1].kernel.io
    binder = ArgumentBinder(sides[0], sides[1], None, ContractInputs(io, "cpu", 7) if io is not None else None)
    drawn = made_by_a_source([5, 4], [8])
    stacked = binder.bind_source_stacks(drawn, NUMBERS)
    assert stacked is not None
    assert_alike(binder, sides, list(drawn), stacked)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ([X, Y, N, OUT], [X, Y, N, OUT]),
        ([X, Y, N, OUT], [OUT, Y, BLOCK, X]),
        ([X, Y, N, OUT], None),
        (None, [X, N, Y, BLOCK, OUT]),
        ([X, Y, OUT], [X, Y, SUM]),
    ],
)
def test_of_a_contract(
    reference: list[dict[str, Any]] | None, candidate: list[dict[str, Any]] | None, tmp_path: Path
) -> None:
    sides = [kernel_run(REFERENCE, reference, tmp_path), kernel_run(CANDIDATE, candidate, tmp_path)]
    contract = sides[0].kernel.io or sides[1].kernel.io
    assert contract is not None
    inputs, own = ContractInputs(contract, "cpu", 7), sides[1].kernel.io
    binder = ArgumentBinder(sides[0], sides[1], contract, ContractInputs(own, "cpu", 7) if own is not None else None)
    assert len(inputs.draw_ahead(NUMBERS)) == CALLS
    stacked = binder.bind_contract_stacks(inputs, NUMBERS)
    assert stacked is not None
    assert_alike(binder, sides, [inputs.draw(number) for number in NUMBERS], stacked)


def test_what_is_random_and_the_candidates_own_is_drawn_singly(tmp_path: Path) -> None:
    sides = [kernel_run(REFERENCE, None, tmp_path), kernel_run(CANDIDATE, [X, RANDOM_OUT], tmp_path)]
    io = sides[1].kernel.io
    assert isinstance(io, IOContract)
    own = ContractInputs(io, "cpu", 7)
    beyond = range(1, 1 + tensor_source.UNLIMITED)
    assert own.can_stack(0, NUMBERS) and not own.can_stack(1, beyond)
    assert ArgumentBinder(sides[0], sides[1], None, own).bind_source_stacks(made_by_a_source([5, 4]), beyond) is None
