"""Cases of a request: their forms, their limits, and contracts whose symbols they give values to."""

from __future__ import annotations

from typing import Any

import pytest
from marshmallow import ValidationError

from api.schemas.request import read_compare, read_evaluate
from domain.cases.case import MAX_CASES
from domain.request import Request
from domain.result import CANDIDATE, REFERENCE

PYTHON = {"kernel_type": "torch", "source_code": "def kernel_fn(x):\n    return x"}


def contract(**more: Any) -> dict[str, Any]:
    x = {"name": "x", "type": "tensor", "tensor_spec": {"shape": ["N", "K"], "strides": ["K", 1]}}
    out = {"name": "out", "type": "tensor", "role": "output", "tensor_spec": {"shape": ["2 * N", "K"]}}
    size = {"name": "n", "type": "int", "value": "N * K"}
    launch = {"grid": {"x": "cdiv(n, 256)", "y": "N"}, "block": [256], "shared_mem": "K * 4"}
    return {"args": [x, out, size], "launch": launch | more}


def cuda(io: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"kernel_type": "cuda", "source_code": "__global__ void f() {}", "io": io or contract()}


def evaluated(cases: Any, io: dict[str, Any] | None = None, **more: Any) -> Request:
    return read_evaluate({"kernel": cuda(io), "cases": cases} | more)


def test_each_case_makes_a_contract_of_its_own() -> None:
    request = evaluated([{"N": 8, "K": 64, "hidden": True}, {"name": "odd", "arguments": {"N": 7, "K": 3}}])
    (hidden, odd), io = request.cases, request.kernel.io
    assert io is not None and io == odd.contracts[CANDIDATE] != hidden.contracts[CANDIDATE]
    x, out, n = io.args
    assert x.tensor_spec is not None and out.tensor_spec is not None
    assert (x.tensor_spec.shape, x.tensor_spec.strides, out.tensor_spec.shape, n.value) == ((7, 3), (3, 1), (14, 3), 21)
    assert (io.launch.grid, io.launch.shared_mem) == (("cdiv(n, 256)", 7, 1), "3 * 4")
    assert request.kernels[CANDIDATE].case == {"arguments": {"N": 7, "K": 3}}
    assert Request.from_wire(request.to_wire()) == request


def test_both_contracts_of_a_comparison_follow() -> None:
    body = {"ref_kernel": PYTHON | {"io": contract()}, "custom_kernel": cuda(), "cases": [{"N": 1, "K": 2}]}
    request = read_compare(body)
    assert request.reference is not None and request.reference.io == request.kernel.io
    assert set(request.cases[0].contracts) == {REFERENCE, CANDIDATE}
    assert read_compare({"kernel" if name == "ref_kernel" else name: part for name, part in body.items()}) == request


def test_a_source_takes_any_arguments_beside_the_symbols() -> None:
    body = {"ref_kernel": PYTHON, "custom_kernel": cuda(), "cases": [{"N": 1, "K": 2, "seed": 5, "mode": "a"}]}
    assert read_compare(body).cases[0].arguments == {"N": 1, "K": 2, "seed": 5, "mode": "a"}


def test_without_cases_the_contracts_own_scalars_give_sizes() -> None:
    io = contract()
    io["args"] += [{"name": name, "type": "int", "value": value} for name, value in (("N", 6), ("K", 4))]
    io["args"][2]["value"] = 24
    request = read_evaluate({"kernel": cuda(io)})
    assert request.kernel.io is not None
    x, out, *_ = request.kernel.io.args
    assert x.tensor_spec is not None and out.tensor_spec is not None
    assert (x.tensor_spec.shape, x.tensor_spec.strides, out.tensor_spec.shape) == ((6, 4), (4, 1), (12, 4))
    assert request.kernel.io.launch.grid == ("cdiv(n, 256)", "N", 1)


def test_bounds_of_what_is_drawn_are_expressions_too() -> None:
    io = contract()
    rows = {"kind": "offsets", "low": 1, "high": "2 * K", "total": "N * K"}
    io["args"] += [
        {"name": "rows", "type": "tensor", "tensor_spec": {"shape": ["N + 1"], "dtype": "int32", "init": rows}},
        {"name": "at", "type": "tensor", "tensor_spec": {"shape": [4], "dtype": "int64", "init": {"high": "M"}}},
    ]
    io["args"][-1]["tensor_spec"]["init"]["kind"] = "randint"
    request = evaluated([{"N": 8, "K": 64, "M": 5}, {"N": 7, "K": 3, "M": 2}], io)
    inits = [
        [arg.tensor_spec and arg.tensor_spec.init for arg in case.contracts[CANDIDATE].args[3:]]
        for case in request.cases
    ]
    found = [(one.high, one.total, other.high) for one, other in inits if one is not None and other is not None]
    assert found == [(128, 512, 5), (6, 21, 2)]
    with pytest.raises(ValidationError) as caught:
        evaluated([{"N": 8, "K": 64, "M": 0}], io)
    assert "'init': {'high': ['must be above low" in str(caught.value.messages)


@pytest.mark.parametrize(("stride", "told"), [("M", "'M' has no value"), ("K // 0", "by zero"), ("K / 2", "must")])
def test_without_cases_another_name_is_refused(stride: str, told: str) -> None:
    x = {"name": "x", "type": "tensor", "tensor_spec": {"shape": ["K", 2], "strides": [stride, 1]}}
    with pytest.raises(ValidationError) as caught:
        read_evaluate({"kernel": cuda({"args": [x, {"name": "K", "type": "int", "value": 5}]})})
    assert told in str(caught.value.messages) and "'strides': {0: [" in str(caught.value.messages)


def test_cases_are_other_work_and_no_part_of_a_kernel_without_them() -> None:
    request = read_evaluate({"kernel": PYTHON})
    assert "case" not in request.kernels[CANDIDATE].to_wire()
    assert request.work != read_evaluate({"kernel": PYTHON, "cases": [{"n": 1}]}).work


ONE = {"N": 1, "K": 2}


@pytest.mark.parametrize(
    ("cases", "path", "told"),
    [
        ([], ["cases"], f"1 to {MAX_CASES}"),
        ({"N": 1}, ["cases"], "must be a list"),
        ([{"N": size, "K": 2} for size in range(MAX_CASES + 1)], ["cases"], f"1 to {MAX_CASES}"),
        ([ONE, 3], ["cases", 1], "must be a JSON object"),
        ([ONE | {"name": ""}], ["cases", 0, "name"], "1 to 100 characters"),
        ([ONE | {"hidden": 1}], ["cases", 0, "hidden"], "true or false"),
        ([ONE | {"timed": "no"}], ["cases", 0, "timed"], "true or false"),
        ([ONE, ONE], ["cases", 1, "name"], "the name of case 0"),
        ([ONE | {"hidden": True}], ["cases"], "no case to time"),
        ([{"arguments": ONE, "J": 1}], ["cases", 0, "J"], "remove it"),
        ([{"arguments": [1]}], ["cases", 0, "arguments"], "must be an object"),
        ([{"arguments": {"N": 1}}], ["cases", 0, "arguments", "K"], "is missing"),
        ([ONE, {"N": 1}], ["cases", 1, "K"], "is missing"),
        ([{"N": 1, "K": "2"}], ["cases", 0, "K"], "must be a number"),
        ([{"N": 1, "K": True}], ["cases", 0, "K"], "must be a number"),
        ([ONE | {"J": 1}], ["cases", 0, "J"], "no contract names this symbol"),
        ([ONE | {"a b": 1}], ["cases", 0, "a b"], "no name of an argument"),
        ([ONE | {"J": "x" * 5000}], ["cases", 0], "4096 characters"),
        (
            [ONE, {"N": -1, "K": 2}],
            ["cases", 1, "kernel", "io", "args", 0, "tensor_spec", "shape", 0],
            "must be between",
        ),
        ([ONE, {"N": 70000, "K": 2}], ["cases", 1, "kernel", "io", "launch", "grid", "y"], "must be between"),
        ([{"N": 1.5, "K": 2}], ["kernel", "io", "args", 0, "tensor_spec", "shape", 0], "whole number"),
    ],
)
def test_a_wrong_case_is_refused_where_it_is_wrong(cases: Any, path: list[Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        evaluated(cases)
    messages: Any = refused.value.messages
    for step in path:
        messages = messages[step]
    assert told in str(messages)


def test_a_contract_that_cannot_follow_is_refused() -> None:
    io = contract()
    io["args"][0]["tensor_spec"]["data"] = {"data_b64": "", "shape": [0]}
    with pytest.raises(ValidationError, match="is fixed"):
        evaluated([ONE], io)
    io = contract()
    io["args"].append({"name": "K", "type": "int", "value": 5})
    with pytest.raises(ValidationError, match="also a symbol"):
        evaluated([ONE], io)
    io = contract()
    io["args"][0]["tensor_spec"]["shape"][0] = "__import__('os')"
    with pytest.raises(ValidationError, match="whole number"):
        evaluated([ONE], io)
    with pytest.raises(ValidationError, match="has no value"):
        read_evaluate({"kernel": cuda()})


@pytest.mark.parametrize("more", [{"artifacts": ["ptx"]}, {"profile": True}])
def test_code_and_names_are_not_returned_beside_hidden_cases(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="beside hidden cases"):
        evaluated([ONE, {"N": 3, "K": 4, "hidden": True}], **more)
    assert evaluated([ONE], **more).cases
