"""Only what the reference gives itself is excused."""

from __future__ import annotations

import pytest
import torch

from validation.edges import given_by_reference
from validation.tolerance import requested

TOLERANCE = requested(1e-3, 1e-3)


def given(expected: list[float], actual: list[float], *runs: list[float], dtype: torch.dtype = torch.float32) -> bool:
    want, got = (torch.tensor(each, dtype=dtype) for each in (expected, actual))
    wide = torch.float64 if dtype.is_floating_point else dtype
    return given_by_reference([want], [got], [[torch.tensor(run, dtype=wide)] for run in runs], TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.int64])
def test_an_element_on_the_other_side_of_a_jump_is_the_references_too(dtype: torch.dtype) -> None:
    assert given([1, 2, 3], [1, 3, 3], [1, 2, 3], [1, 3, 3], [1, 2, 3], dtype=dtype)
    assert given([1, 2, 3], [2, 3, 3], [1, 3, 3], [2, 2, 3], dtype=dtype), "each in a run of its own"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_what_no_run_gives_is_wrong(dtype: torch.dtype) -> None:
    assert not given([1, 2, 3], [1, 4, 3], [1, 2, 3], [1, 3, 3], dtype=dtype)
    assert not given([1, 2, 3], [2, 3, 3], [1, 2, 3], [1, 3, 3], dtype=dtype)
    assert not given([1, 2, 3], [1, 3, 3], dtype=dtype), "without a run nothing is known"


def test_between_the_sides_of_a_jump_is_neither() -> None:
    assert not given([0.0, 1.0], [0.0, 0.5], [0.0, 1.0], [0.0, 0.0])


def test_nan_and_infinity_are_excused_by_nothing_else() -> None:
    nan, inf = float("nan"), float("inf")
    assert not given([0.0], [nan], [0.0], [inf])
    assert given([0.0], [nan], [0.0], [nan]) and given([0.0], [inf], [0.0], [inf])
    assert not given([0.0], [-inf], [0.0], [inf])


def test_runs_of_another_form_tell_nothing() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    assert not given_by_reference([one], [two], [[torch.zeros(3)]], TOLERANCE)
    assert not given_by_reference([one], [two], [[two, two]], TOLERANCE)
    assert not given_by_reference([one.long()], [two.long()], [[two.double()]], TOLERANCE)
