"""Tolerances of the dtypes, and tasks that a trivial answer would pass."""

from __future__ import annotations

import pytest
import torch

from backends.dtypes import torch_dtype
from domain.dtype import CODES, COMPLEX, FLOATS, ITEM_BYTES
from domain.flags.codes import FlagCode
from validation.compare.tolerance import EXACT, Tolerance, effective_tolerance, strict
from validation.evidence.weak_reference import FixedOutputs, weak_reference

COMPARED = sorted(set(ITEM_BYTES) - CODES)
"""The referee compares the others as bytes."""


@pytest.mark.parametrize("name", COMPARED)
def test_strict_tolerances_are_those_of_assert_close(name: str) -> None:
    dtype = torch_dtype(name)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        step = torch.tensor(1.0).to(dtype).float() * (1 + torch.finfo(dtype).eps)
        torch.testing.assert_close(step, torch.tensor(1.0), atol=strict(dtype).atol, rtol=strict(dtype).rtol)
        return
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    assert strict(dtype) == Tolerance(atol, rtol)


def test_integers_are_exact_whatever_is_asked() -> None:
    asked = Tolerance(0.5, 0.5)
    for name in COMPARED:
        exact = name not in FLOATS | COMPLEX
        assert effective_tolerance(torch_dtype(name), asked) == (EXACT if exact else asked)


def test_tolerances_read_as_clients_expect() -> None:
    assert str(Tolerance(1e-5, 1e-5)) == "atol=1e-05, rtol=1e-05"
    assert str(Tolerance()) == "atol=0.01, rtol=0.01"


def test_small_outputs_let_zeros_pass() -> None:
    softmax = torch.softmax(torch.rand(8, 1024), dim=-1)
    (flag,) = weak_reference([softmax], [], Tolerance(1e-2, 1e-2))
    assert flag.code is FlagCode.TRIVIAL_OUTPUT_PASSES
    assert flag.message == "output 0: all zeros would pass at atol=0.01, rtol=0.01"
    assert flag.data == {"output": 0, "trivial_output": "all zeros", "atol": 0.01, "rtol": 0.01}
    assert weak_reference([softmax], [], Tolerance(1e-6, 1e-5)) == []


def test_constants_and_copies_are_named() -> None:
    given = torch.randn(64, 64)
    findings = weak_reference(
        [torch.ones(5), torch.full((5,), 5.0), given + 1e-4, torch.relu(given), torch.zeros(0)],
        [torch.randn(64), given],
        Tolerance(1e-2, 1e-2),
    )
    assert [(flag.code, flag.data["output"], flag.data.get("trivial_output")) for flag in findings] == [
        (FlagCode.TRIVIAL_OUTPUT_PASSES, 0, "all ones"),
        (FlagCode.TRIVIAL_OUTPUT_PASSES, 1, "a constant, the mean of the output,"),
        (FlagCode.TRIVIAL_OUTPUT_PASSES, 2, "a copy of input tensor 1"),
        (FlagCode.OUTPUT_EMPTY, 4, None),
    ]


@pytest.mark.parametrize("name", COMPARED)
def test_every_dtype_is_tried(name: str) -> None:
    dtype = torch_dtype(name)
    varied = torch.tensor([1, 0, 1, 1]).to(dtype)
    assert weak_reference([varied], [torch.tensor([1, 0, 0, 1]).to(dtype)], Tolerance(1e-3, 1e-3)) == []
    assert len(weak_reference([varied], [varied.clone()], Tolerance(1e-3, 1e-3))) == 1
    assert len(weak_reference([torch.zeros(3, dtype=dtype)], [], Tolerance(1e-3, 1e-3))) == 1


def test_a_trivial_corner_is_not_a_trivial_output() -> None:
    triangular = torch.triu(torch.randn(64, 64), diagonal=20)
    assert weak_reference([triangular], [], Tolerance(1e-2, 1e-2)) == []


def test_an_output_of_nans_is_a_constant() -> None:
    (flag,) = weak_reference([torch.full((4,), float("nan"))], [], Tolerance(1e-2, 1e-2))
    assert flag.data["trivial_output"] == "a constant, the mean of the output,"


def test_a_single_number_is_no_constant_where_other_calls_give_others() -> None:
    """It is its own mean, which a kernel that does no work does not know."""
    loss, tolerance = torch.tensor(2.3), Tolerance(1e-2, 1e-2)
    assert weak_reference([loss], [], tolerance) == []
    assert weak_reference([loss], [], tolerance, [[torch.tensor(2.31)], [torch.tensor(2.5)]]) == []
    (flag,) = weak_reference([loss], [], tolerance, [[torch.tensor(2.31)], [torch.tensor(2.29)]])
    assert flag.data["trivial_output"] == "the output of any other call"


def test_an_answer_that_is_every_calls_tells_nothing() -> None:
    """Be it no constant: a deep network without a residual forgets its input."""
    bias, tolerance = torch.randn(4, 10), Tolerance(1e-2, 1e-2)
    others = [[bias + 1e-3], [bias - 1e-3]]
    (flag,) = weak_reference([bias], [], tolerance, others)
    assert flag.data["trivial_output"] == "the output of any other call"
    assert weak_reference([bias], [], tolerance, [*others, [bias + 0.1]]) == []
    assert weak_reference([bias], [], tolerance, [[bias[:2]]]) == []


@pytest.mark.parametrize(("elsewhere", "found"), [(0.004, 1), (0.7, 0)])
def test_a_single_number_is_no_zero_where_other_calls_give_others(elsewhere: float, found: int) -> None:
    """One of many may be near zero in one call."""
    others = [[torch.tensor(elsewhere)]]
    assert len(weak_reference([torch.tensor(0.005)], [], Tolerance(1e-2, 1e-2), others)) == found


TOLERANCE = Tolerance(1e-2, 1e-2)
UNKNOWN = {"with_other_weights": None}


def fixed(*calls: list[torch.Tensor], drawn: bool = True) -> dict[str, object] | None:
    """The figures of the flag after these calls of a reference."""
    seen = FixedOutputs(calls[0])
    for outputs in calls[1:]:
        seen.see(outputs, [TOLERANCE] * len(outputs), drawn=drawn)
    return None if seen.flag is None else dict(seen.flag.data)


def test_constants_and_kept_outputs_that_pass_in_every_call_are_fixed_outputs() -> None:
    bias = torch.randn(4, 10)
    assert fixed([torch.zeros(3)], [torch.zeros(3)]) == {"fixed_output": "all zeros", "calls": 2} | UNKNOWN
    assert fixed([bias], [bias + 1e-3], [bias]) == {"fixed_output": "the output of another call", "calls": 3} | UNKNOWN
    assert fixed([bias, torch.ones(1)], [bias, torch.ones(1)]) is not None
    small = [torch.tensor([0.009, -0.009])], [torch.tensor([-0.009, 0.009])]
    assert fixed(*small) == {"fixed_output": "all zeros", "calls": 2} | UNKNOWN, (
        "they differ by more than the tolerance"
    )


def test_outputs_that_change_with_the_inputs_are_not_fixed() -> None:
    bias = torch.randn(4, 10)
    assert fixed([bias], [bias], [bias + 0.1]) is None
    assert fixed([bias], [bias[:2]]) is None
    assert fixed([bias, torch.ones(1)], [bias, torch.ones(1) * 2]) is None, "one of two"
    assert fixed([bias]) is None, "of one call nothing is known"


def test_outputs_that_are_not_finite_exclude_nothing_on_inputs_that_were_not_drawn() -> None:
    broken = torch.tensor([1.0, float("nan")])
    assert fixed([torch.ones(2)], [torch.ones(2)], [broken], drawn=False) is not None
    assert fixed([torch.ones(2)], [torch.ones(2)], [broken]) is None


@pytest.mark.parametrize(("other", "outcome"), [(0.0, "pass"), (0.5, "differ")])
def test_other_weights_are_reported_and_exclude_nothing(other: float, outcome: str) -> None:
    seen = FixedOutputs([torch.zeros(3)])
    seen.see([torch.zeros(3)], [TOLERANCE])
    seen.see_with_other_weights([torch.full((3,), other)], TOLERANCE)
    assert seen.flag is not None and seen.flag.data["with_other_weights"] == outcome
