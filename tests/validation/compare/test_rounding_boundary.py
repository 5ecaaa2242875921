"""Only what the reference gives itself is excused."""

from __future__ import annotations

import pytest
import torch

from validation.compare.rounding_boundary import TIED_SHARE, explained_by_jumps, few_are_wrong, few_enough
from validation.compare.tolerance import requested

TOLERANCE = requested(1e-3, 1e-3)


def given(expected: list[float], actual: list[float], *runs: list[float], dtype: torch.dtype = torch.float32) -> bool:
    want, got = (torch.tensor(each, dtype=dtype) for each in (expected, actual))
    wide = torch.float64 if dtype.is_floating_point else dtype
    return explained_by_jumps([want], [got], [[torch.tensor(run, dtype=wide)] for run in runs], TOLERANCE)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int64]
)
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


def test_each_half_of_a_byte_may_be_explained_by_a_run_of_its_own() -> None:
    assert given([0x35], [0x46], [0x36], [0x45], dtype=torch.uint8)
    assert given([0x35], [0x46], [0x36], [0x46], dtype=torch.uint8) and given([-7], [-8], [-8], dtype=torch.int8)
    assert not given([0x35], [0x46], [0x36], [0x36], dtype=torch.uint8), "no run changes the upper half"
    assert not given([0x35], [0x47], [0x36], [0x45], dtype=torch.uint8), "no run has the lower half's value"
    assert not given([0x3035], [0x4035], [0x4036], dtype=torch.int32), "numbers of more bits are whole"


def test_nan_and_infinity_are_excused_by_nothing_else() -> None:
    nan, inf = float("nan"), float("inf")
    assert not given([0.0], [nan], [0.0], [inf])
    # A moved input may leave the function's domain: no jump between two answers.
    assert not given([0.0], [nan], [0.0], [nan]) and not given([0.0], [inf], [0.0], [inf])
    assert given([nan], [inf], [nan], [inf])
    assert not given([0.0], [-inf], [0.0], [inf])


def test_where_nothing_is_out_of_tolerance_nothing_jumps() -> None:
    assert not given([1.0], [1.0], [1.0])


def test_runs_of_another_form_tell_nothing() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    assert not explained_by_jumps([one], [two], [[torch.zeros(3)]], TOLERANCE)
    assert not explained_by_jumps([one], [two], [[two, two]], TOLERANCE)
    assert not explained_by_jumps([one.long()], [two.long()], [[two.double()]], TOLERANCE)


def test_an_error_near_the_tolerance_is_no_jump() -> None:
    """Moved inputs bring the reference within tolerance of it, and are within tolerance of the reference themselves."""
    expected = torch.full((64, 300), 1.0)
    actual = expected + torch.where(torch.arange(300) == 299, 0.025, 0.0)
    moved = [[expected + 0.01], [expected - 0.01]]
    assert not explained_by_jumps([expected], [actual], moved, requested(None, None))
    assert explained_by_jumps([expected], [actual], [[expected + 0.025]], requested(None, None))


@pytest.mark.parametrize(
    ("elements", "rows", "shape", "wanted"),
    [
        (2, 2, (64, 64), True),
        (4, 3, (64, 64), True),
        (5, 3, (64, 64), False),
        (64, 1, (64, 64), True),
        (128, 2, (64, 64), True),
        (192, 3, (64, 64), False),
        (64, 1, (2, 64), False),
        (3, 3, (100,), False),
    ],
)
def test_few_elements_or_few_rows(elements: int, rows: int, shape: tuple[int, ...], wanted: bool) -> None:
    assert few_enough(elements, rows, [torch.zeros(shape)]) is wanted


def test_ties_are_more_than_jumps() -> None:
    expected = torch.zeros(100, 100, dtype=torch.uint8)
    actual = expected.clone()
    actual.view(-1)[::125] = 1
    assert not few_are_wrong([expected], [actual], TOLERANCE)
    assert few_are_wrong([expected], [actual], TOLERANCE, TIED_SHARE)
    actual.view(-1)[::75] = 1
    assert not few_are_wrong([expected], [actual], TOLERANCE, TIED_SHARE)


def test_rows_are_counted_where_wrong_elements_lie() -> None:
    expected = torch.zeros(64, 64)
    row, spread = expected.clone(), expected.clone()
    row[3] = 1.0
    spread[:, 3] = 1.0
    assert few_are_wrong([expected], [row], requested(None, None)) and not few_are_wrong(
        [expected], [spread], requested(None, None)
    )
