"""The comparison's rules once more, as plainly as numpy can say them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Verdict:
    """What the oracle says of one output."""

    mismatches: int
    first: int | None
    max_abs: float
    max_rel: float
    sum_abs: float


def floating(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], atol: float, rtol: float) -> Verdict:
    """Element by element over flat float64 or complex128 arrays, in Python's own arithmetic."""
    wrong, differences, relatives = [], [0.0], [0.0]
    for index, (want, got) in enumerate(zip(expected.tolist(), actual.tolist(), strict=True)):
        if np.isfinite(want) and np.isfinite(got):
            difference = abs(got - want)
            differences.append(difference)
            relatives.append(difference / abs(want) if want else 0.0)
            right = difference <= atol + rtol * abs(want)
        else:
            right = all(
                one == other or (np.isnan(one) and np.isnan(other))
                for one, other in ((np.real(want), np.real(got)), (np.imag(want), np.imag(got)))
            )
        if not right:
            wrong.append(index)
    return Verdict(len(wrong), wrong[0] if wrong else None, max(differences), max(relatives), sum(differences))


def integral(expected: list[int], actual: list[int]) -> Verdict:
    """Python integers have no width to lose."""
    gaps = [abs(got - want) for want, got in zip(expected, actual, strict=True)]
    wrong = [index for index, gap in enumerate(gaps) if gap]
    relatives = [gap / abs(want) for gap, want in zip(gaps, expected, strict=True) if want]
    return Verdict(
        len(wrong),
        wrong[0] if wrong else None,
        float(max(gaps, default=0)),
        max(relatives, default=0.0),
        float(sum(gaps)),
    )
