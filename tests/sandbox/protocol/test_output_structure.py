"""What a runner tells of the form of an answer, and what is believed of it."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import numpy
import pytest
import torch

from backends.base import Target
from domain.fault import KernelFault
from sandbox.protocol.output_structure import MAX_NAME, OutputStructure, parse, to_wire
from sandbox.protocol.outputs import Keys, tensors_of

ONE, TWO, THREE = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0])
CPU = Target("cpu", None)
Pair = namedtuple("Pair", ["mean", "std"])


class Output(OrderedDict[str, Any]):
    """As transformers' ModelOutput is: a mapping, a dataclass by its looks."""


@dataclasses.dataclass
class Answer:
    mean: Any
    std: Any


class Name(enum.StrEnum):
    MEAN = "mean"


def form(result: Any) -> OutputStructure | None:
    """By way of JSON, as it crosses."""
    return parse(json.loads(json.dumps(to_wire(result, []))), len(tensors_of(result, CPU)))


def names(result: Any) -> tuple[str, ...] | None:
    found = form(result)
    return found.names if found is not None else None


@pytest.mark.parametrize(
    "mapping",
    [
        {"mean": ONE, "std": TWO},
        {"mean": ONE, "nothing": None, "std": TWO, "empty": [None, "text", ()]},
        Output(mean=ONE, std=TWO),
        UserDict(mean=ONE, std=2.0),
        types.MappingProxyType({Name.MEAN: ONE, numpy.str_("std"): numpy.float32(2)}),
        [{"mean": ONE, "std": TWO}, None],
        Answer(ONE, TWO),
    ],
    ids=lambda mapping: type(mapping).__name__,
)
def test_members_have_the_names_of_a_mappings_keys(mapping: Any) -> None:
    found = form(mapping)
    assert found == OutputStructure(
        2, (OutputStructure(), OutputStructure()), ("'mean'", "'std'"), keyed=not isinstance(mapping, Answer)
    )


def test_equal_keys_have_the_same_name_and_others_none() -> None:
    assert names({1: ONE, "1": TWO, 2.5: THREE}) == ("1", "'1'", "2.5")
    assert names({True: ONE, 2.0: TWO, numpy.int64(3): THREE}) == ("1", "2", "3")
    assert names({("layer", 0): ONE, None: TWO}) == ("('layer', 0)", "None")
    assert names({"a\nb": ONE, "\ud800": TWO}) == (r"'a\nb'", r"'\ud800'")
    for key in (object(), "a" * MAX_NAME, 2**63, 10**5000, (object(),)):
        assert form({key: ONE, "std": TWO}) == OutputStructure(2, (OutputStructure(), OutputStructure()))


@pytest.mark.parametrize("result", [(ONE, TWO), [ONE, (TWO,)], Pair(ONE, TWO), torch.ones(2, 2).max(-1)])
def test_what_is_told_by_place_has_no_names(result: Any) -> None:
    assert form(result) == OutputStructure(2, (OutputStructure(), OutputStructure()))


def test_what_carries_no_answer_has_no_form() -> None:
    assert form(None) is None and form({"text": "a", "none": [None]}) is None
    assert form(ONE) == form([None, [2]]) == OutputStructure()


def deep(levels: int) -> Any:
    told: Any = 1
    for _ in range(levels):
        told = [told]
    return told


@pytest.mark.parametrize(
    "told",
    [
        *(None, True, 0, 2, 1.0, "1", [], [1, 0], [1, None], {}, {"keys": ["a", "b"]}, {"members": [1, 1]}),
        *({"keys": names, "members": [1, 1]} for names in (["a"], ["a", "a"], ["a", 2], ["a", ""], ["a", "b\n"], "ab")),
        {"keys": ["a", "b" * (MAX_NAME + 1)], "members": [1, 1]},
        {"keys": ["a", "b"], "members": [1, []]},
        {"keys": ["a", "b"], "members": [1, [1, 1]]},
        [deep(17), 1],
        [1] * 70_000,
    ],
    ids=lambda told: str(told)[:40],
)
def test_anything_else_is_no_form(told: Any) -> None:
    assert parse(told, 2) is None


def read(result: Any, keys: list[Keys]) -> list[float]:
    return [tensor.item() for tensor in tensors_of(result, CPU, keys)]


def test_later_answers_are_read_in_the_order_of_the_first_ones_keys() -> None:
    first = {"a": {"x": ONE, "y": TWO}, "n": None, 0: [{"z": THREE}]}
    keys: list[Keys] = []
    to_wire(first, keys)
    assert keys == [("a", "n", 0), ("x", "y"), ("z",)]
    assert read(first, keys) == [1, 2, 3]
    assert read({0: [{"z": THREE}], "a": {"y": TWO, "x": ONE}, "more": None}, keys) == [1, 2, 3]
    assert read({"a": {"y": TWO}, 0: [{"z": THREE}]}, keys) == [2, 3], "which is too few for its slots"
    with pytest.raises(KernelFault, match="the output changed from a dict with the keys"):
        read({"a": {"x": ONE, "other": TWO}, 0: [{"z": THREE}]}, keys)


def test_keys_that_are_other_objects_in_each_call_are_none_to_read_by() -> None:
    keys: list[Keys] = []
    to_wire({object(): ONE, "last": {"b": TWO}}, keys)
    assert keys == [None, ("b",)]
    assert read({object(): ONE, "last": {"b": TWO}}, keys) == [1, 2]
