"""Constructor arguments that a reference gives: what crosses, and what is said of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from backends.base import ReferenceArguments
from backends.source.init_args import from_wire, to_wire
from domain.value import Unserializable, decode, leaves

ITSELF: list[Any] = []
ITSELF.append(ITSELF)


def crossed(init: list[Any] | None) -> list[Any] | None:
    return from_wire(decode(json.loads(json.dumps(to_wire(ReferenceArguments(init)))))).init


@pytest.mark.parametrize(
    "init", [None, [], [8, 0.5, "relu", True, None, (1, [2])], [torch.int8, {"a": torch.bfloat16}]]
)
def test_what_crosses_comes_as_it_was(init: list[Any] | None) -> None:
    assert crossed(init) == init


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.relu, "builtin_function_or_method relu"),
        (torch.nn.GELU, "type GELU"),
        (torch.nn.GELU(), "GELU"),
        (torch.ones(2), "Tensor"),
        (torch.float8_e4m3fnuz, "dtype"),
        ({1: 2}, "dict"),
        (1 << 70, "int"),
    ],
)
def test_what_does_not_is_named_in_its_place(value: Any, words: str) -> None:
    assert crossed([8, {"deep": (value,)}]) == [8, {"deep": (Unserializable(words),)}]


def test_names_cross_and_another_form_is_nothing() -> None:
    given = ReferenceArguments([1], ["a"], ["x", "mask"])
    wire = to_wire(given)
    assert from_wire(decode(wire)) == given and from_wire(None) == ReferenceArguments()
    for other in ([1], {"init": [1]}, {**vars(given), "init_names": 1}, {**vars(given), "init": {}}):
        assert from_wire(other) == ReferenceArguments()


def test_what_contains_itself_ends_somewhere() -> None:
    assert leaves(crossed([ITSELF]), Unserializable) == [Unserializable("list")]
