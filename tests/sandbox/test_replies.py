"""What a runner answers is cut to what the referee can hold."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sandbox.replies import MAX_FACT_CHARS, facts


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
