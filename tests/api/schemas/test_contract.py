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
