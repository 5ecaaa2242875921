"""What a runner answers is cut to what the referee can hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from backends.code_listings import MAX_CHARS, MAX_CODES, CodeText, MissingText
from domain.listing import Form
from sandbox.supervisor import messages
from sandbox.supervisor.messages import MAX_FACT_CHARS, MAX_FACTS_CHARS, CodeListing, Probe, parse_facts, parse_tensors


@pytest.mark.parametrize(
    ("wire", "held"),
    [
        ({"n": 3, "t": "x", "b": True, "none": None, "f": 1.5}, {"n": 3, "t": "x", "b": True, "none": None, "f": 1.5}),
        ({"l": ["a", 1, None]}, {"l": ["a", "1", "None"]}),
        ({"k": [{"name": "f", "registers": 32}]}, {"k": [{"name": "f", "registers": 32}]}),
        ({"o": {"theoretical": 0.5, "limited_by": "warps"}}, {"o": {"theoretical": 0.5, "limited_by": "warps"}}),
        ({"o": {"compiled": ["f", 1], "ended": "completed"}}, {"o": {"compiled": ["f", "1"], "ended": "completed"}}),
        ({"o": {"deep": {"deeper": 1}}}, {"o": {"deep": "{'deeper': 1}"}}),
        ({"f": math.inf, "big": 2**70}, {"f": "inf", "big": str(2**70)}),
        ("no facts", {}),
        (None, {}),
    ],
)
def test_facts_are_plain_groups_of_plain_ones_or_lists_of_either(wire: Any, held: dict[str, Any]) -> None:
    assert parse_facts(wire) == held


@pytest.mark.parametrize("wire", [[object()], {"$": "pickle"}, ["x" * 70_000], [["long"] * 20_000], 2**70])
def test_an_example_that_no_builder_could_read_is_none(wire: Any) -> None:
    assert messages.parse_example(wire) is None
    assert messages.parse_example({"$": "tuple", "items": [None, [1]]}) == {"$": "tuple", "items": [None, [1]]}


def test_facts_are_bounded() -> None:
    wire = {"x" * 999: "y" * 9999, "k": [{"n" * 999: "v" * 9999}], "many": list(range(1000))}
    found = parse_facts(wire)
    assert next(iter(found)) == "x" * 64 and len(found["x" * 64]) == MAX_FACT_CHARS
    assert found["k"] == [{"n" * 64: "v" * MAX_FACT_CHARS}]
    assert len(found["many"]) <= MAX_FACT_CHARS
    assert len(parse_facts({str(number): number for number in range(1000)})) == 64


def test_facts_are_bounded_all_together() -> None:
    group = {str(number): "é" * MAX_FACT_CHARS for number in range(64)}
    found = parse_facts({"small": 1, **{str(number): [group] * 8 for number in range(60)}})
    assert found["small"] == 1 and len(json.dumps(found)) <= MAX_FACTS_CHARS + 64 * 64


TEXT = {"kernel": "k", "form": "ptx", "text": "t", "truncated": False, "variant": None}


def test_code_is_taken_as_far_as_it_is_any() -> None:
    strange: list[Any] = [None, 7, {}, {**TEXT, "form": "elf"}, {**TEXT, "kernel": 1}, {**TEXT, "text": None}, [TEXT]]
    long = {**TEXT, "text": "x" * (MAX_CHARS + 1), "variant": 7}
    found = messages.parse_code(
        {"found": [*strange, TEXT, long], "lacking": [TEXT, *strange], "kernels": [{"name": "k"}, 1]}
    )
    assert found.texts[0] == CodeText("k", Form.PTX, "t", truncated=False)
    assert isinstance(found.texts[1], CodeText) and found.texts[1].truncated and found.texts[1].variant == "7"
    assert len(found.texts[1].text) == MAX_CHARS
    assert [type(one) for one in found.texts[2:]] == [MissingText, MissingText], "a reason needs no text"
    assert found.kernels == [{"name": "k"}]


@pytest.mark.parametrize("answer", [{}, {"found": {}, "lacking": 1, "kernels": "k"}, {"found": None}])
def test_an_answer_without_code_is_none(answer: dict[str, Any]) -> None:
    assert messages.parse_code(answer) == CodeListing([], [])


def test_no_more_code_is_taken_than_was_asked_for() -> None:
    found = messages.parse_code({"found": [TEXT] * 1000, "kernels": [{}] * 1000})
    assert len(found.texts) == MAX_CODES * len(Form) and len(found.kernels) == MAX_CODES


@pytest.mark.parametrize(
    ("launches", "returned", "reuses", "shapes", "entries"),
    [
        (1, False, False, [(1024, 1024)], 1.0),
        (0, False, False, [], 1.0),
        (None, True, False, [(8,)], None),
        (3, True, False, [(8,)], 3 + 1 / 48),
        (1, True, False, [(320 << 16,), (8,)], 2 + 1 / 48),
        (2, True, True, [(8,), (8,)], 4.0),
    ],
)
def test_a_call_takes_of_the_queue_what_it_launches_and_what_copies_its_answer(
    launches: int | None, returned: bool, reuses: bool, shapes: list[tuple[int, ...]], entries: float | None
) -> None:
    outputs = [torch.empty(shape, device="meta") for shape in shapes]
    probe = Probe(outputs, returned, 0.01, reuses, launches)
    assert probe.entries == (None if entries is None else pytest.approx(entries))


def test_streams_that_wait_for_each_other_take_more_of_the_queue() -> None:
    assert Probe([], False, 0.01, launches=5, several_streams=True).entries == 15.0


@pytest.mark.parametrize(
    ("outputs", "copies"),
    [
        ([torch.empty(8, 8)[:, ::2]], 1.0),
        ([torch.empty(8, 8).t()], 1 / 48),
        ([torch.empty(8), torch.empty(8, dtype=torch.int64)], 2.0),
        ([torch.empty(8, 8)[:, ::2], torch.empty(8)], 2.0),
    ],
    ids=["gaps", "transposed", "of two types", "gaps in one"],
)
def test_answers_that_are_not_alike_or_have_gaps_are_copied_one_by_one(
    outputs: list[torch.Tensor], copies: float
) -> None:
    assert Probe(outputs, True, 0.01, launches=1).entries == pytest.approx(1 + copies)


def test_answers_whose_elements_are_one_in_memory_are_none() -> None:
    plain = torch.ones(2, 3)
    assert parse_tensors([plain, plain.t()]) is not None
    assert parse_tensors([plain, torch.ones(3).expand(2, 3)]) is None
