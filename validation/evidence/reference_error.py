"""Tells where not the kernel but the reference errs: float64 is within the kernel's rounding, and not within its own.

A CPU adds the rows of a bfloat16 embedding's gradient in bfloat16, and atomics of a GPU do so too. A kernel that adds
in float32 then differs from the reference in many elements, and is right. It is so where, in one call,

- every element of its float16 and bfloat16 outputs is within a unit in the last place of the reference in float64, plus
  what sums in float32 err (`validation/evidence/float64_bound.py`);
- the reference is further off than that in every element beyond tolerance;
- all elements beyond tolerance are in such outputs;
- the reference rounds nothing on purpose: its float64 run with all casts of the source to float16 and bfloat16 rounding
  differs from the one without by the rounding of the outputs alone. A kernel that leaves a quantisation out thus gets
  nothing: other quantisations, to integers and float8, are part of both runs.
"""

from __future__ import annotations

import math

import torch

from validation.compare.bitwise import blocks
from validation.compare.comparison import PIECE
from validation.compare.rounding_boundary import wrong_positions
from validation.compare.tolerance import Tolerance
from validation.evidence.float64_bound import (
    FAILURE,
    UNIT_ROUNDOFF,
    Outputs,
    error_bound,
    half_unit,
    root_mean_square,
)

LONGEST_SUM = 1 << 20
"""Maximum terms of a sum in float32, whose error then stays under a half of float16's unit roundoff."""
DTYPES = (torch.float16, torch.bfloat16)


def kernel_is_exact(actual: Outputs, exact: Outputs, terms: int) -> bool:
    """Whether all elements in low precision are as near to the float64 run as float32 sums of so many terms allow."""
    return all(
        true.dtype is torch.float64 and true.shape == got.shape and _within(got, true, got.dtype, terms)
        for got, true in zip(actual, exact, strict=True)
        if got.dtype in DTYPES
    )


def rounds_outputs_alone(exact: Outputs, rounded: Outputs, expected: Outputs) -> bool:
    """Whether the source's own casts change nothing but the last rounding of outputs in low precision."""
    return len(exact) == len(rounded) and all(
        cast.shape == true.shape and _within(cast, true, want.dtype)
        for true, cast, want in zip(exact, rounded, expected, strict=True)
        if want.dtype in DTYPES
    )


def reference_error(
    expected: Outputs, actual: Outputs, exact: Outputs, terms: int, tolerance: Tolerance
) -> float | None:
    """The reference's largest error where the kernel is beyond tolerance of it, relative to the output's rms.

    None if an element lies in another output, or is one in which the reference is right.
    """
    largest = 0.0
    for want, got, true in zip(expected, actual, exact, strict=True):
        positions = wrong_positions(want, got, tolerance)
        if not len(positions):
            continue
        scale = root_mean_square(true)
        values, targets = (tensor.reshape(-1)[positions].double() for tensor in (want, true))
        errors = (values - targets).abs_()
        if want.dtype not in DTYPES or bool((errors <= _allowed(targets, scale, want.dtype, terms)).any()):
            return None
        largest = max(largest, float(errors.max()) / max(scale, math.ulp(0.0)))
    return largest


def _within(values: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, terms: int = 0) -> bool:
    scale = root_mean_square(exact)
    return all(
        bool(((value.double() - true).abs_() <= _allowed(true, scale, dtype, terms)).all())
        for value, true in blocks([values, exact], PIECE)
    )


def _allowed(true: torch.Tensor, scale: float, dtype: torch.dtype, terms: int) -> torch.Tensor:
    """The largest error of the output's rounding alone, or of a unit and float32 sums of so many terms."""
    if not terms:
        return half_unit(true, dtype)
    deviations = math.sqrt(2 * math.log(2 * LONGEST_SUM / FAILURE))
    allowance = deviations * math.sqrt(min(terms, LONGEST_SUM)) * UNIT_ROUNDOFF
    return half_unit(true, dtype) + error_bound(true, scale, allowance, dtype)
