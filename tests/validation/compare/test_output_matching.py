"""Outputs belong together by the names that both sides give them, else by their place."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from domain.fault import KernelFault
from domain.result import Status
from sandbox.protocol.output_structure import OutputStructure, parse, to_wire
from validation.compare.output_matching import match_outputs


@dataclasses.dataclass
class Fields:
    b: Any
    a: Any


def form(result: Any) -> OutputStructure:
    """Of an answer in whose place numbers stand."""
    told = to_wire(result, [])
    found = next((form for tensors in range(9) if (form := parse(told, tensors)) is not None), None)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("expected", "actual", "order"),
    [
        ({"a": 1, "b": 1}, {"b": 1, "a": 1}, [1, 0]),
        ({"a": 1, "b": 1, "c": None}, {"c": "", "a": 1, "b": 1}, [0, 1]),
        ({"a": [1, 1], "b": 1}, {"b": 1, "a": (1, 1)}, [1, 2, 0]),
        ({"a": {"x": 1, "y": 1}, 0: {"x": 1, "y": 1}}, {0: {"y": 1, "x": 1}, "a": {"x": 1, "y": 1}}, [2, 3, 1, 0]),
        ((1, {"a": 1, "b": 1}, 1), [1, {"b": 1, "a": 1}, 1], [0, 2, 1, 3]),
        (({"a": 1, "b": 1}, None), [{"b": 1, "a": 1}], [1, 0]),
        ({"a": 1, "b": 1}, Fields(1, 1), [1, 0]),
        (Fields(1, 1), Fields(1, 1), [0, 1]),
        ({"c": 1, "d": 1}, Fields(1, 1), [0, 1]),
        ({"b": 1, "a": 1}, (1, 1), [0, 1]),
        ((1, 1), {"b": 1, "a": 1}, [0, 1]),
        ({"a": 1}, 1, [0]),
        ((1, {"a": 1, "b": 1}), (1, 1, 1), [0, 1, 2]),
        (((1, 1), {"a": 1, "b": 1}), (1, {"b": 1, "a": 1}), [0, 1, 2]),
        (((1, 1), 1), (1, (1, 1)), [0, 1, 2]),
        (1, (1, 1), [0, 1]),
    ],
)
def test_outputs_are_matched_by_key_where_both_have_keys(expected: Any, actual: Any, order: list[int]) -> None:
    assert match_outputs(form(expected), form(actual)) == order


def test_what_has_no_form_is_matched_by_place() -> None:
    assert match_outputs(None, form({"b": 1, "a": 1})) == [0, 1]
    assert match_outputs(form({"b": 1, "a": 1}), None) == []


@pytest.mark.parametrize(
    ("expected", "actual", "says"),
    [
        ({"a": 1, "b": 1}, {"a": 1}, "returns lacks 'b': outputs"),
        ({"a": 1, "b": 1}, {"a": 1, "b": None}, "returns lacks 'b': outputs"),
        ({"a": 1}, {"a": 1, "c": 1}, "returns has 'c', which the reference's dict lacks"),
        ({"a": 1, "b": 1}, {"a": 1, "c": 1}, "lacks 'b' and has 'c'"),
        ({"s": ({"a": 1, 2: 1}, 1)}, {"s": ({"a": 1}, 1)}, "returns under ['s'] lacks 2"),
        ({"a": 1}, dict.fromkeys(range(8), 1), "has 0, 1, 2, 3, 4 and 3 more"),
        (
            {"a": (1, 1), "b": 1},
            {"a": 1, "b": (1, 1)},
            "1 of the kernel's outputs and 2 of the reference's are under ['a']",
        ),
    ],
)
def test_other_keys_are_named(expected: Any, actual: Any, says: str) -> None:
    with pytest.raises(KernelFault) as caught:
        match_outputs(form(expected), form(actual))
    assert caught.value.status is Status.WRONG_RESULT and says in caught.value.message
