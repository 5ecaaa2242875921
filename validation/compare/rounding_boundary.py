"""Tests whether a wrong output is one that the reference itself gives for inputs that differ by rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from validation.compare.bitwise import count_true, pieces
from validation.compare.comparison import PIECE
from validation.compare.element_errors import wrong_elements
from validation.compare.tolerance import Tolerance, effective_tolerance

Outputs = list[torch.Tensor]


SHARE, FEWEST, MOST_SHARE = 1e-3, 2, 0.1
"""Maximum share (or number) of wrong elements or rows, and maximum share of elements, that rounding may explain. Rows
count because a choice (the nearest of some rows) changes a whole row, and a swap changes two."""
TIED_SHARE = 1e-2
"""Maximum share of elements where inputs moved by less than float32 rounds explain them: exact ties. One in 400 numbers
of bfloat16 divided by a float8 scale is half-way between two numbers of float4, two of which share a byte."""
HALVES = (0x0F, 0xF0)
"""The bits of the two numbers that a byte may hold."""


def few_enough(elements: int, rows: int, outputs: Outputs, share: float = SHARE) -> bool:
    """Whether so few of a call's outputs are wrong that rounding may have decided them."""
    count = sum(output.numel() for output in outputs)
    row_count = sum(output.numel() // row_length(output) for output in outputs)
    return elements <= max(FEWEST, share * count) or (
        rows <= max(FEWEST, SHARE * row_count) and elements <= MOST_SHARE * count
    )


def row_length(output: torch.Tensor) -> int:
    """Elements that may be chosen as one unit: the last dimension, or 1 for a vector."""
    return max(output.shape[-1], 1) if output.dim() > 1 else 1


def rows_in(mask: torch.Tensor) -> int:
    """How many rows of an output contain a marked element."""
    return int(mask.reshape(-1, row_length(mask)).any(dim=-1).sum())


def few_are_wrong(expected: Outputs, actual: Outputs, requested: Tolerance, share: float = SHARE) -> bool:
    """Whether rounding may explain the wrong elements of one call's outputs, judged by their number (`few_enough`)."""
    elements = rows = 0
    for want, got in zip(expected, actual, strict=True):
        tolerance, length, last_row = effective_tolerance(want.dtype, requested), row_length(want), -1
        for start, wrong in _wrong_pieces(want, got, tolerance):
            positions = wrong.nonzero().flatten()
            if not len(positions):
                continue
            elements += len(positions)
            found = positions.add_(start).div_(length, rounding_mode="floor")
            # A row may lie in two pieces.
            rows += count_true(found[1:] != found[:-1]) + int(found[0] != last_row)
            last_row = int(found[-1])
    return few_enough(elements, rows, expected, share)


def wrong_positions(expected: torch.Tensor, actual: torch.Tensor, requested: Tolerance) -> torch.Tensor:
    """The flat indexes, in C order, of an output's wrong elements."""
    parts = [
        wrong.nonzero().flatten() + start
        for start, wrong in _wrong_pieces(expected, actual, effective_tolerance(expected.dtype, requested))
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64, device=expected.device)


def explained_by_jumps(expected: Outputs, actual: Outputs, runs: Iterable[Outputs], requested: Tolerance) -> bool:
    """Whether every out-of-tolerance element of one call equals what some run of the reference gave there.

    The same run must itself be out of tolerance at the element: the function jumps. `runs` are the same call in float64
    and with inputs moved by a rounding error; they are made only as far as needed. Where a function jumps (rounding to
    levels, a threshold), two right kernels may land on different sides in one element of a million. A value between the
    sides is never excused. Two runs may explain the two halves of a byte, which may be two packed numbers.
    """
    tolerances = [effective_tolerance(want.dtype, requested) for want in expected]
    unexplained = [_wrong(*triple) for triple in zip(expected, actual, tolerances, strict=True)]
    if not any(bool(wrong.any()) for wrong in unexplained):
        return False  # Wrong only under a stricter measure, so there is no jump.
    differing = [_differing_bits(*pair) if _is_bytes(*pair) else None for pair in zip(expected, actual, strict=True)]
    for run in runs:
        if _forms(run) != _forms(expected):
            return False
        for index, (want, got) in enumerate(zip(run, actual, strict=True)):
            reference_output = expected[index]
            if not reference_output.is_floating_point() and want.dtype != reference_output.dtype:
                return False
            explained = _wrong(want, got, tolerances[index]).logical_not_()
            if want.is_floating_point() or want.is_complex():  # A NaN outside the domain is no jump.
                explained &= (_finite(want) | ~_finite(reference_output)).reshape(-1)
            unexplained[index] &= ~(explained & _wrong(reference_output, want, tolerances[index], want.dtype))
            if (left := differing[index]) is not None:
                moved, short = _differing_bits(reference_output, want), _differing_bits(actual[index], want)
                for half in HALVES:
                    left &= ~(((moved & half != 0) & (short & half == 0)).to(torch.uint8) * half)
                unexplained[index] &= left != 0
        if not any(bool(wrong.any()) for wrong in unexplained):
            return True
    return False


def _is_bytes(*outputs: torch.Tensor) -> bool:
    return all(output.dtype in (torch.uint8, torch.int8) for output in outputs)


def _differing_bits(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The bits in which two outputs of bytes differ, flat."""
    return (one.view(torch.uint8) ^ other.view(torch.uint8)).reshape(-1)


def _wrong(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A flat mask of the wrong elements, where both sides are compared as `dtype`, else as the expected one's."""
    parts = [wrong for _, wrong in _wrong_pieces(expected, actual, tolerance, dtype)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool, device=expected.device)


def _wrong_pieces(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance, dtype: torch.dtype | None = None
) -> Iterator[tuple[int, torch.Tensor]]:
    """The flat index of each piece of the comparison, and a mask of its wrong elements."""
    common = dtype or expected.dtype
    for start, want, got in pieces(expected, actual, PIECE // (1 + common.is_complex)):
        yield start, wrong_elements(want.to(common).unsqueeze(0), got.to(common).unsqueeze(0), tolerance)[0]


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """Which elements are neither NaN nor infinite; torch has no isfinite for float8."""
    return (tensor.to(torch.float32) if tensor.dtype.itemsize == 1 else tensor).isfinite()


def _forms(outputs: Outputs) -> list[tuple[torch.Size, bool]]:
    return [(tensor.shape, tensor.is_complex()) for tensor in outputs]
