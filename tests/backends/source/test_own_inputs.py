"""Sources whose `get_inputs()` yields sets of inputs: the cases they make, and how each set is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.base import Executable
from domain.cases.case import CaseSource
from domain.fault import KernelFault
from tests.backends.loading import kernel, loaded

RELU = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
SIZES = "def get_inputs():\n    for n in (2, 3, 5):\n        yield [torch.randn(n)]\n"
RETURNED = (
    "def get_inputs():\n    return ([torch.randn(n)] for n in (2, 3, 5))\n",
    "def get_inputs():\n    return iter([[torch.randn(n)] for n in (2, 3, 5)])\n",
    "def get_inputs():\n    return map(torch.randn, (2, 3, 5))\n",
    "def get_inputs():\n    return zip(map(torch.randn, (2, 3, 5)))\n",
    "def get_inputs():\n    yield from ({'x': torch.randn(n)} for n in (2, 3, 5))\n",
    "def get_inputs(*sizes):\n    for n in sizes or (2, 3, 5):\n        yield torch.randn(n)\n",
    "@torch.no_grad()\ndef get_inputs():\n    for n in (2, 3, 5):\n        yield (torch.randn(n),)\n",
)


def opened(source: str, folder: Path, before: str = RELU) -> Executable:
    return loaded(kernel(f"{before}\n{source}"), folder)


def at(executable: Executable, **case: Any) -> Executable:
    """The executable in that case."""
    executable.use_case(replace(kernel(""), case=case))
    return executable


def sizes(executable: Executable, count: int) -> list[int]:
    made = [at(executable, index=index).own_inputs(1) for index in range(count)]
    return [len(arguments[0]) for arguments in made if arguments is not None]


@pytest.mark.parametrize("source", [SIZES, *RETURNED])
def test_each_set_is_a_case(source: str, tmp_path: Path) -> None:
    executable = opened(source, tmp_path)
    own = executable.cases()
    assert own is not None and [case["name"] for case in own] == ["set 0", "set 1", "set 2"]
    assert executable.case_source is CaseSource.GET_INPUTS
    assert sizes(executable, 3) == [2, 3, 5]


def test_without_a_case_the_first_set_is_drawn(tmp_path: Path) -> None:
    made = opened(SIZES, tmp_path).own_inputs(1)  # As a builder does, which asks for no cases.
    assert made is not None and made[0].shape == (2,)


def test_a_source_that_returns_its_inputs_has_no_cases(tmp_path: Path) -> None:
    assert opened("def get_inputs():\n    return [torch.randn(2)]\n", tmp_path).cases() is None
    assert opened("", tmp_path).cases() is None


def test_every_set_is_fresh_under_each_seed_and_the_same_under_one(tmp_path: Path) -> None:
    executable = opened(SIZES, tmp_path)
    executable.cases()
    for index in range(3):
        at(executable, index=index)
        first, again, other = executable.own_inputs(1), executable.own_inputs(1), executable.own_inputs(2)
        assert first is not None and again is not None and other is not None
        assert torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])


def test_what_a_generator_holds_ends_with_each_set(tmp_path: Path) -> None:
    source = """
def get_inputs():
    with torch.no_grad():
        for n in (2, 3):
            yield [torch.randn(n)]
"""
    executable = opened(source, tmp_path)
    executable.cases()
    assert torch.is_grad_enabled()
    assert sizes(executable, 2) == [2, 3] and torch.is_grad_enabled()


def test_only_one_set_at_a_time_is_in_memory(tmp_path: Path) -> None:
    source = """
import weakref
class Set(torch.Tensor): pass
LIVE = weakref.WeakSet()
def get_inputs():
    for n in range(8):
        assert not len(LIVE), f"{len(LIVE)} earlier sets are still there"
        made = torch.ones(n + 1).as_subclass(Set)
        LIVE.add(made)
        box = [made]
        del made
        yield [box.pop()]
"""
    executable = opened(source, tmp_path)
    own = executable.cases()
    assert own is not None and len(own) == 8
    made = at(executable, index=7).own_inputs(1)
    assert made is not None and len(made[0]) == 8


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def get_inputs():\n    return iter([])", "yielded no set of inputs: yield at least one"),
        ("def get_inputs():\n    while True:\n        yield torch.ones(1)", "more than 32 sets, and each is a case"),
        ("def get_inputs():\n    yield from [torch.ones(1)] * 33", "more than 32 sets, and each is a case"),
        ("def get_inputs():\n    yield torch.ones(1)\n    raise ValueError('no more')", "ValueError: no more"),
    ],
)
def test_sets_that_are_no_cases_are_told(source: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(KernelFault, match=told):
        opened(source, tmp_path).cases()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("None", "get_inputs.. yielded None; each `yield` gives one set"),
        ("(torch.ones(1) for _ in range(2))", "get_inputs.. yielded a generator; each `yield` gives one set"),
        ("{1, 2}", "get_inputs.. yielded a set; each `yield` gives one set"),
    ],
)
def test_a_yield_that_is_no_set_is_told(made: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(KernelFault, match=told):
        opened(f"def get_inputs():\n    yield {made}", tmp_path).own_inputs(1)


def test_arguments_that_are_yielded_one_by_one_are_told(tmp_path: Path) -> None:
    source = "def kernel_fn(x, y): return x + y\ndef get_inputs():\n    yield torch.ones(2)\n    yield torch.ones(2)"
    with pytest.raises(
        KernelFault,
        match=r"yielded a set of 1, and function kernel_fn cannot be called with so many: each `yield` gives one set",
    ):
        opened(source, tmp_path, before="").own_inputs(1)


VARIES = """
import random
def get_inputs():
    for n in range({}):
        yield [torch.randn(n + 1)]
"""


def test_a_number_of_sets_that_varies_is_told(tmp_path: Path) -> None:
    executable = opened(VARIES.format("random.randint(2, 30)"), tmp_path)
    own = executable.cases()
    assert own is not None
    at(executable, index=len(own) - 1)
    told = []
    for seed in range(20):
        try:
            executable.own_inputs(seed)
        except KernelFault as fault:
            told.append(fault.message)
    assert told and all(f"{len(own)} at first: each is a case" in message for message in told)


def test_a_further_set_than_at_first_is_told(tmp_path: Path) -> None:
    source = "COUNT = []\ndef get_inputs():\n    COUNT.append(1)\n    yield from [torch.ones(2)] * len(COUNT)"
    executable = opened(source, tmp_path)
    assert executable.cases() is not None
    with pytest.raises(KernelFault, match="yielded more than 1 sets, and 1 at first"):
        at(executable, index=0).own_inputs(1)


@pytest.mark.parametrize("yields", [True, False])
def test_sets_in_some_calls_alone_are_told(yields: bool, tmp_path: Path) -> None:
    source = "CALLS = []\ndef get_inputs():\n    CALLS.append(1)\n    made = [torch.ones(2)]\n"
    source += f"    return iter([made]) if (len(CALLS) == 1) is {yields} else made"
    executable = opened(source, tmp_path)
    assert (executable.cases() is not None) is yields
    with pytest.raises(KernelFault, match="yields sets in one call, and returns one in another"):
        executable.own_inputs(1)


def test_a_case_with_arguments_takes_one_set(tmp_path: Path) -> None:
    source = "def get_inputs(n=1, sets=1):\n    for _ in range(sets):\n        yield [torch.randn(n)]\n"
    made = at(opened(source, tmp_path), arguments={"n": 4}).own_inputs(1)
    assert made is not None and made[0].shape == (4,)
    with pytest.raises(KernelFault, match="yielded several sets for one case: with `cases` in the request"):
        at(opened(source, tmp_path), arguments={"sets": 2}).own_inputs(1)
    with pytest.raises(KernelFault, match="yielded no set"):
        at(opened(source, tmp_path), arguments={"sets": 0}).own_inputs(1)


def test_get_cases_gives_the_arguments_of_a_generator(tmp_path: Path) -> None:
    source = "def get_inputs(n):\n    yield [torch.randn(n)]\ndef get_cases():\n    return [{'n': 4}, {'n': 6}]\n"
    executable = opened(source, tmp_path)
    assert executable.case_source is CaseSource.GET_CASES
    assert executable.cases() == [{"n": 4}, {"n": 6}] and sizes(executable, 2) == [4, 6]


def test_a_contract_s_inputs_are_no_sets_of_the_source(tmp_path: Path) -> None:
    spec = {"name": "x", "type": "tensor", "role": "input", "tensor_spec": {"shape": [2]}}
    executable = loaded(kernel(f"{RELU}\ndef get_inputs():\n    1 // 0\n    yield", io={"args": [spec]}), tmp_path)
    assert executable.cases() is None


def test_constructor_arguments_are_not_yielded(tmp_path: Path) -> None:
    source = (
        "class Model(nn.Module):\n    def __init__(self, n): super().__init__()\n    def forward(self, x): return x\n"
    )
    with pytest.raises(KernelFault, match=r"get_init_inputs\(\) returned a generator; end it with `return \[...\]`"):
        opened("def get_init_inputs():\n    yield 3\n", tmp_path, before=source)
