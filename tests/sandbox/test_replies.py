"""What a runner answers is cut to what the referee can hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from backends.listings import MAX_CHARS, MAX_CODES, Found, Lacking
from domain.listing import Form
from sandbox import replies
from sandbox.replies import MAX_FACT_CHARS, MAX_FACTS_CHARS, Code, facts


@pytest.mark.parametrize(
    ("wire", "held"),
    [
        ({"n": 3, "t": "x", "b": True, "none": None, "f": 1.5}, {"n": 3, "t": "x", "b": True, "none": None, "f": 1.5}),
        ({"l": ["a", 1, None]}, {"l": ["a", "1", "None"]}),
        ({"k": [{"name": "f", "registers": 32}]}, {"k": [{"name": "f", "registers": 32}]}),
        ({"o": {"theoretical": 0.5, "limited_by": "warps"}}, {"o": {"theoretical": 0.5, "limited_by": "warps"}}),
        ({"o": {"deep": {"deeper": 1}}}, {"o": {"deep": "{'deeper': 1}"}}),
        ({"f": math.inf, "big": 2**70}, {"f": "inf", "big": str(2**70)}),
        ("no facts", {}),
        (None, {}),
    ],
)
def test_facts_are_plain_groups_of_plain_ones_or_lists_of_either(wire: Any, held: dict[str, Any]) -> None:
    assert facts(wire) == held


def test_facts_are_bounded() -> None:
    wire = {"x" * 999: "y" * 9999, "k": [{"n" * 999: "v" * 9999}], "many": list(range(1000))}
    found = facts(wire)
    assert next(iter(found)) == "x" * 64 and len(found["x" * 64]) == MAX_FACT_CHARS
    assert found["k"] == [{"n" * 64: "v" * MAX_FACT_CHARS}]
    assert len(found["many"]) <= MAX_FACT_CHARS
    assert len(facts({str(number): number for number in range(1000)})) == 64


def test_facts_are_bounded_all_together() -> None:
    group = {str(number): "é" * MAX_FACT_CHARS for number in range(64)}
    found = facts({"small": 1, **{str(number): [group] * 8 for number in range(60)}})
    assert found["small"] == 1 and len(json.dumps(found)) <= MAX_FACTS_CHARS + 64 * 64


TEXT = {"kernel": "k", "form": "ptx", "text": "t", "truncated": False, "variant": None}


def test_code_is_taken_as_far_as_it_is_any() -> None:
    strange: list[Any] = [None, 7, {}, {**TEXT, "form": "elf"}, {**TEXT, "kernel": 1}, {**TEXT, "text": None}, [TEXT]]
    long = {**TEXT, "text": "x" * (MAX_CHARS + 1), "variant": 7}
    found = replies.code({"found": [*strange, TEXT, long], "lacking": [TEXT, *strange], "kernels": [{"name": "k"}, 1]})
    assert found.texts[0] == Found("k", Form.PTX, "t", truncated=False)
    assert isinstance(found.texts[1], Found) and found.texts[1].truncated and found.texts[1].variant == "7"
    assert len(found.texts[1].text) == MAX_CHARS
    assert [type(one) for one in found.texts[2:]] == [Lacking, Lacking], "a reason needs no text"
    assert found.kernels == [{"name": "k"}]


@pytest.mark.parametrize("answer", [{}, {"found": {}, "lacking": 1, "kernels": "k"}, {"found": None}])
def test_an_answer_without_code_is_none(answer: dict[str, Any]) -> None:
    assert replies.code(answer) == Code([], [])


def test_no_more_code_is_taken_than_was_asked_for() -> None:
    found = replies.code({"found": [TEXT] * 1000, "kernels": [{}] * 1000})
    assert len(found.texts) == MAX_CODES * len(Form) and len(found.kernels) == MAX_CODES
