"""Whether a wrong answer is one that the reference gives itself for inputs that differ by rounding."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from validation.compare.element_errors import wrong_elements
from validation.compare.tolerance import Tolerance, applied

Outputs = list[torch.Tensor]


SHARE, FEWEST, MOST_SHARE = 1e-3, 2, 0.1
"""Of elements, or of rows where these are no more than the last of all elements; or so many of few, as what is chosen
otherwise (the nearest of some rows) is one row, and what changes places does so in twos."""


def few(elements: int, rows: int, answers: Outputs) -> bool:
    """Whether so few are wrong of such answers to a call that rounding may have decided them."""
    count = sum(answer.numel() for answer in answers)
    of_rows = sum(answer.numel() // row_length(answer) for answer in answers)
    return elements <= max(FEWEST, SHARE * count) or (
        rows <= max(FEWEST, SHARE * of_rows) and elements <= MOST_SHARE * count
    )


def row_length(answer: torch.Tensor) -> int:
    """Elements of what may be chosen as one; of a single row each by itself."""
    return max(answer.shape[-1], 1) if answer.dim() > 1 else 1


def rows_in(mask: torch.Tensor) -> int:
    """In how many rows of an answer such a mask of its elements holds any."""
    return int(mask.reshape(-1, row_length(mask)).any(dim=-1).sum())


def few_are_wrong(expected: Outputs, actual: Outputs, requested: Tolerance) -> bool:
    """The same of one call's answers, that were found to be wrong."""
    masks = [
        _wrong(want, got, applied(want.dtype, requested)).view(want.shape)
        for want, got in zip(expected, actual, strict=True)
    ]
    return few(sum(int(mask.sum()) for mask in masks), sum(map(rows_in, masks)), expected)


def given_by_reference(expected: Outputs, actual: Outputs, runs: Iterable[Outputs], requested: Tolerance) -> bool:
    """Of one call: whether each element that is out of tolerance is what one of those runs of the reference gave there,
    where that run is out of tolerance as well: it jumps.

    `runs` are of the same call in float64, and with inputs moved by as much as rounding does; no more of them are made
    than are needed. Where a function jumps (rounding to levels, a threshold), two right kernels land on either side of
    the jump in one element of a million. An answer that lies between its sides is none that the reference gives.
    """
    tolerances = [applied(want.dtype, requested) for want in expected]
    left = [_wrong(*three) for three in zip(expected, actual, tolerances, strict=True)]
    if not any(bool(wrong.any()) for wrong in left):
        return False  # Whatever is wrong is so by a narrower measure, and no jump.
    for run in runs:
        if _forms(run) != _forms(expected):
            return False
        for index, (want, got) in enumerate(zip(run, actual, strict=True)):
            ours = expected[index]
            if not ours.is_floating_point() and want.dtype != ours.dtype:
                return False
            given = _wrong(want, got.to(want.dtype), tolerances[index]).logical_not_()
            if want.is_floating_point() or want.is_complex():  # Out of the function's domain is no jump.
                given &= (want.isfinite() | ~ours.isfinite()).reshape(1, -1)
            left[index] &= ~(given & _wrong(ours.to(want.dtype), want, tolerances[index]))
        if not any(bool(wrong.any()) for wrong in left):
            return True
    return False


def _wrong(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    one, other = expected.reshape(1, expected.numel()), actual.reshape(1, actual.numel())
    return wrong_elements(one, other, tolerance)


def _forms(outputs: Outputs) -> list[tuple[torch.Size, bool]]:
    return [(tensor.shape, tensor.is_complex()) for tensor in outputs]
