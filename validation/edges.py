"""Whether a wrong answer is one that the reference gives itself for inputs that differ by rounding."""

from __future__ import annotations

import torch

from validation.elements import wrong_elements
from validation.tolerance import Tolerance, applied

Outputs = list[torch.Tensor]


def given_by_reference(expected: Outputs, actual: Outputs, runs: list[Outputs], requested: Tolerance) -> bool:
    """Of one call: whether each element that is out of tolerance is what one of those runs of the reference gave there.

    `runs` are of the same call in float64, and with inputs moved by as much as rounding does. Where a function jumps
    (rounding to levels, a threshold), two right kernels land on either side of the jump in one element of a million. An
    answer that lies between its sides is none that the reference gives.
    """
    if not runs or any(_forms(run) != _forms(expected) for run in runs):
        return False
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if want.numel() == 0:
            continue
        tolerance = applied(want.dtype, requested)
        wrong = _wrong(want, got, tolerance)
        for run in runs:
            if not want.is_floating_point() and run[index].dtype != want.dtype:
                return False
            wrong &= _wrong(run[index], got.to(run[index].dtype), tolerance)
        if bool(wrong.any()):
            return False
    return True


def _wrong(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    return wrong_elements(expected.reshape(1, -1), actual.reshape(1, -1), tolerance)


def _forms(outputs: Outputs) -> list[tuple[torch.Size, bool]]:
    return [(tensor.shape, tensor.is_complex()) for tensor in outputs]
