"""Contracts at the door: element types of block scaling, constants, and index sets that belong together."""

from __future__ import annotations

from typing import Any

import pytest
from marshmallow import ValidationError

from api.schemas.contract import IOContractSchema


def drawn(name: str, shape: list[Any], dtype: str = "int32", **init: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "tensor_spec": {"shape": shape, "dtype": dtype, "init": init}}


def refused(*args: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        IOContractSchema().load({"args": list(args)})
    return str(caught.value.messages)


@pytest.mark.parametrize(
    ("dtype", "init", "says"),
    [
        ("float8_e8m0fnu", {"kind": "zeros"}, "'init': {'kind': ['float8_e8m0fnu has no 0"),
        ("float8_e8m0fnu", {"kind": "full", "fill_value": 3}, "'init': {'fill_value': ['float8_e8m0fnu has no 3"),
        ("float8_e8m0fnu", {"kind": "uniform", "low": 0, "high": 4}, "'init': {'low': ['float8_e8m0fnu has no 0"),
        ("float8_e8m0fnu", {"low": 16}, "'high': ['must be above low: low is 16, high is 8"),
        ("float8_e8m0fnu", {"kind": "randint"}, "'init': {'kind': ['must be one of randn, uniform"),
        ("float4_e2m1fn_x2", {"kind": "arange"}, "'init': {'kind': ['must be one of randn, uniform"),
        ("float4_e2m1fn_x2", {"kind": "full", "fill_value": 5}, "'fill_value': ['float4_e2m1fn_x2 has no 5"),
    ],
)
def test_codes_have_few_kinds_and_values(dtype: str, init: dict[str, Any], says: str) -> None:
    assert says in refused(drawn("x", [4], dtype, **init))
    IOContractSchema().load({"args": [drawn("x", [4], dtype, kind="uniform", low=1, high=1)]})


@pytest.mark.parametrize(
    "given",
    [
        drawn("c", [4]) | {"role": "inout"},
        {"name": "c", "type": "int", "value": 1},
        {"name": "c", "type": "tensor", "tensor_spec": {"shape": [4, 4], "strides": [1, 4]}},
    ],
)
def test_constants_are_contiguous_inputs(given: dict[str, Any]) -> None:
    IOContractSchema().load({"args": [drawn("c", [4]) | {"is_constant": True}]})
    assert "'is_constant': ['is for input tensors" in refused(given | {"is_constant": True})


LENGTHS = drawn("lengths", [8], kind="lengths", low=1, high=64, total=256)
OFFSETS = drawn("offsets", [9], kind="offsets", of="lengths")
ROWS = drawn("rows", [9], kind="offsets", high=32, total=100)
STARTS = drawn("starts", [8], kind="offsets", of="lengths")


@pytest.mark.parametrize(
    "args",
    [
        [LENGTHS, OFFSETS, STARTS, drawn("ids", [256], kind="segments", of="offsets")],
        [drawn("columns", [100], kind="columns", of="rows", high=32), ROWS],
        [ROWS, drawn("lengths", [8], kind="lengths", of="rows")],
        [drawn("experts", [64, 4], "int64", kind="distinct", high=8), drawn("order", [64], "uint8", kind="distinct")],
        [drawn("free", [5], kind="lengths"), drawn("ends", [6], "uint16", kind="offsets", of="free")],
        [drawn("none", [1], kind="offsets", total=0), drawn("ids", [0], kind="segments", of="none")],
    ],
)
def test_index_sets_that_belong_together_are_taken(args: list[dict[str, Any]]) -> None:
    IOContractSchema().load({"args": args})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([drawn("x", [8], "float32", kind="lengths")], "{'dtype': ['lengths are whole numbers"),
        ([drawn("x", [2, 4], kind="offsets")], "{'shape': ['offsets have one dimension"),
        ([drawn("x", [0], kind="offsets")], "{'shape': ['offsets have one entry more"),
        ([drawn("x", [], kind="distinct")], "{'shape': ['distinct have dimensions"),
        ([drawn("x", [8], kind="lengths", low=-1)], "{'init': {'low': ['must be a whole number that is not negative"),
        ([drawn("x", [8], kind="lengths", low=9, high=4)], "{'init': {'high': ['must not be below low"),
        (
            [drawn("x", [8], kind="lengths", high=4, total=33)],
            "{'init': {'total': ['cannot be 33: 8 lengths from 0 to 4",
        ),
        ([drawn("x", [3], "int8", kind="offsets", total=200)], "{'dtype': ['holds up to 200, and int8 does not"),
        ([drawn("x", [1 << 30], kind="lengths", high=1 << 20, total=1 << 31)], "{'shape': ['is too large"),
        ([drawn("x", [9], kind="distinct", high=8)], "{'init': {'high': ['has 8 numbers below it; a row takes 9"),
        ([drawn("x", [9], kind="segments")], "{'init': {'of': ['is missing; it names an argument whose init.kind is"),
        (
            [drawn("x", [9], kind="offsets", of="x")],
            "'of': [\"must name, other than 'x', an argument whose init.kind is len",
        ),
        ([drawn("x", [9], kind="offsets", of="y"), drawn("y", [8], kind="lengths", of="x")], "'y', which is not drawn"),
        (
            [LENGTHS, drawn("x", [10], kind="offsets", of="lengths")],
            "{'shape': [\"must be [9] after 'lengths', not [10]",
        ),
        ([ROWS, drawn("x", [99], kind="segments", of="rows")], "{'shape': [\"must be [100] after 'rows', not [99]"),
        ([LENGTHS, STARTS, drawn("x", [256], kind="segments", of="starts")], "without their end; name 'lengths'"),
        (
            [drawn("l", [4], kind="lengths"), drawn("x", [99], kind="segments", of="l")],
            "no `total`: the size would vary",
        ),
        ([ROWS, drawn("x", [100], kind="columns", of="rows")], "{'init': {'high': ['is missing: the number of columns"),
        ([ROWS, drawn("x", [100], kind="columns", of="rows", high=31)], "a part takes up to 32"),
        ([drawn("x", [4], "uint64", kind="distinct", high=2**64)], "{'init': {'high': ['must be below"),
        ([drawn("x", [1], "int64", kind="offsets", high=1e300)], "{'shape': ['is too large for so many parts"),
        ([drawn("x", [1 << 21, 1 << 7], "int8", kind="distinct")], "{'shape': ['is too large: distinct are 134217728"),
        (
            [drawn("rows", [9], kind="randint"), ROWS, drawn("x", [100], kind="segments", of="rows")],
            "{'init': {'of': [\"must name, other than 'rows'",
        ),
    ],
)
def test_index_sets_that_cannot_be_drawn_are_refused_with_their_path(args: list[dict[str, Any]], says: str) -> None:
    told = refused(*args)
    assert says in told and f"'args': {{{len(args) - 1 if 'which is' not in says else 0}: {{'tensor_spec'" in told
