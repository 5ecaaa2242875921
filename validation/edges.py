"""Whether a wrong answer is one that the reference gives itself for inputs that differ by rounding."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from validation.elements import wrong_elements
from validation.tolerance import Tolerance, applied

Outputs = list[torch.Tensor]


def given_by_reference(expected: Outputs, actual: Outputs, runs: Iterable[Outputs], requested: Tolerance) -> bool:
    """Of one call: whether each element that is out of tolerance is what one of those runs of the reference gave there.

    `runs` are of the same call in float64, and with inputs moved by as much as rounding does; no more of them are made
    than are needed. Where a function jumps (rounding to levels, a threshold), two right kernels land on either side of
    the jump in one element of a million. An answer that lies between its sides is none that the reference gives.
    """
    tolerances = [applied(want.dtype, requested) for want in expected]
    left = [_wrong(*three) for three in zip(expected, actual, tolerances, strict=True)]
    for run in runs:
        if _forms(run) != _forms(expected):
            return False
        for index, (want, got) in enumerate(zip(run, actual, strict=True)):
            if not expected[index].is_floating_point() and want.dtype != expected[index].dtype:
                return False
            left[index] &= _wrong(want, got.to(want.dtype), tolerances[index])
        if not any(bool(wrong.any()) for wrong in left):
            return True
    return False


def _wrong(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    one, other = expected.reshape(1, expected.numel()), actual.reshape(1, actual.numel())
    return wrong_elements(one, other, tolerance)


def _forms(outputs: Outputs) -> list[tuple[torch.Size, bool]]:
    return [(tensor.shape, tensor.is_complex()) for tensor in outputs]
