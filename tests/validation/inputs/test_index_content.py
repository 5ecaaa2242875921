"""Index sets that belong together: each rule holds in every set, and the sets differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from domain.contract import Argument, IOContract, TensorData, TensorInit, TensorSpec
from validation.inputs import tensor_source
from validation.inputs.contract_inputs import ContractInputs


def drawn(name: str, *shape: int, dtype: str = "int32", **init: Any) -> Argument:
    return Argument(name, "tensor", tensor_spec=TensorSpec(shape, dtype, init=TensorInit(**init)))


CSR = IOContract(
    (
        drawn("columns", 400, kind="columns", of="rows", high=40),
        drawn("rows", 33, kind="offsets", low=1, high=30, total=400),
        drawn("lengths", 32, dtype="int64", kind="lengths", of="rows"),
        drawn("ids", 400, dtype="int16", kind="segments", of="rows"),
        drawn("experts", 64, 4, dtype="uint8", kind="distinct", high=8),
        drawn("order", 3, 50, kind="distinct"),
    )
)
RAGGED = IOContract(
    (
        drawn("lengths", 16, kind="lengths", total=200),
        drawn("offsets", 17, kind="offsets", of="lengths"),
        drawn("starts", 16, dtype="uint32", kind="offsets", of="lengths"),
        drawn("ids", 200, kind="segments", of="lengths"),
        drawn("free", 16, kind="lengths", low=3, high=5),
        drawn("ends", 17, kind="offsets", of="free"),
    )
)


SENT = TensorSpec((2,), "int32", init=TensorInit("segments", of="ids"), data=TensorData("AAAAAAAAAAA=", "int32", (2,)))


@pytest.fixture(params=["one by one", "in groups"])
def _grouped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in groups":
        monkeypatch.setattr(tensor_source, "PREDICTABLE", frozenset())


@pytest.mark.usefixtures("_grouped")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_csr_rows_columns_and_choices_of_experts(device: str) -> None:
    inputs, seen = ContractInputs(CSR, device, 7), set()
    for number in range(70):
        columns, rows, lengths, ids, experts, order = (tensor.cpu().long() for tensor in inputs.draw(number))
        seen.add((tuple(columns.tolist()), tuple(rows.tolist()), tuple(experts.flatten().tolist())))
        assert (rows[0], rows[-1]) == (0, 400) and torch.equal(rows.diff(), lengths)
        assert lengths.min() >= 1 and lengths.max() <= 30
        assert torch.equal(ids, torch.arange(32).repeat_interleave(lengths))
        assert columns.min() >= 0 and columns.max() < 40
        assert (columns.diff()[ids.diff() == 0] > 0).all()
        assert experts.max() < 8 and (experts.sort(-1).values.diff() > 0).all()
        assert torch.equal(order.sort(-1).values, torch.arange(50).expand(3, 50))
    assert len(seen) == 70


@pytest.mark.usefixtures("_grouped")
def test_ragged_lengths_and_their_offsets() -> None:
    inputs, empty, longest = ContractInputs(RAGGED, "cpu", 7), 0, 0
    for number in range(70):
        lengths, offsets, starts, ids, free, ends = (tensor.long() for tensor in inputs.draw(number))
        assert lengths.sum() == 200 and lengths.min() >= 0
        assert torch.equal(offsets, torch.cat([torch.zeros(1).long(), lengths.cumsum(0)]))
        assert torch.equal(starts, offsets[:-1])
        assert torch.equal(ids, torch.arange(16).repeat_interleave(lengths))
        assert free.min() >= 3 and free.max() <= 5 and torch.equal(ends.diff(), free)
        empty, longest = empty + int((lengths == 0).sum()), max(longest, int(lengths.max()))
    assert empty > 70 and longest > 40


def test_a_tight_bound_and_nothing_to_draw() -> None:
    io = IOContract(
        (
            drawn("full", 5, kind="lengths", high=7, total=35),
            drawn("tight", 64, kind="lengths", low=2, high=8, total=500),
            drawn("none", 1, kind="offsets", total=0),
            drawn("ids", 0, kind="segments", of="none"),
            drawn("columns", 0, kind="columns", of="none", high=3),
        )
    )
    for number in range(20):
        full, tight, none, ids, columns = ContractInputs(io, "cpu", 7).draw(number)
        assert full.tolist() == [7] * 5 and none.tolist() == [0] and len(ids) == len(columns) == 0
        assert tight.sum() == 500 and tight.min() >= 2 and tight.max() <= 8


def test_stacked_sets_are_those_drawn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_source, "PREDICTABLE", frozenset())
    together, alone = ContractInputs(CSR, "cpu", 7), ContractInputs(CSR, "cpu", 7)
    numbers = together.draw_ahead(range(1, 20))
    assert len(numbers) == 19 and not together.repeats
    stacks = [together.stack(position, 1, 19) for position in range(len(CSR.args))]
    for number in numbers:
        assert all(torch.equal(stack[number - 1], one) for stack, one in zip(stacks, alone.draw(number), strict=True))


def test_what_a_kind_does_not_follow_is_ignored() -> None:
    args = (
        drawn("x", 4, dtype="float32", kind="randn", of="x"),
        drawn("order", 4, kind="distinct", of="order"),
        drawn("zeros", 4, kind="zeros", of="nothing"),
        replace(drawn("ids", 2, kind="segments", of="ids"), tensor_spec=SENT),
    )
    _, order, zeros, ids = ContractInputs(IOContract(args), "cpu", 7).draw(1)
    assert sorted(order.tolist()) == [0, 1, 2, 3] and zeros.tolist() == [0] * 4 and ids.tolist() == [0, 0]
