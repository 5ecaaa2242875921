"""Bounds how far a right output may be from the reference in float64, where the output or an input is of low precision.

An element with the exact value y is right where

    |actual - y| <= h(y) + S * (lambda * sqrt(n) * u + lambda * r + p), with S = max(|y|, rms(y)):

- h(y) is half a unit in the last place of the output's dtype at y: the one rounding of the output.
- lambda * sqrt(n) * u bounds the error of n additions in float32, u = 2**-24 (Higham and Mary, "A new approach to
  probabilistic rounding error analysis", SISC 2019, theorem 2.4, and "Sharper probabilistic backward error analysis",
  SISC 2020, for terms of both signs: an error grows with the partial sums, whose size S stands for). lambda is
  sqrt(2 ln(2N / P)), so that all N elements of an output are within the bound except with probability P.
- r is the rms over all elements of what the reference itself errs beyond h(y), relative to S. A reference that rounds
  intermediate values, or computes in TF32, thus allows the same to the kernel.
- p is 0 unless an input is float8: (n / 32) * 2**-13. The tensor cores of Ada and Hopper keep 13 fraction bits of a sum
  of float8 products, and add 32 products at once (DeepSeek-V3 technical report, 2024, section 3.5.2). A model of such
  an accumulator erred by at most 0.0105 * S in 655,360 elements at n = 4096, where p is 0.0156.

No part of it is larger for a kernel that accumulates in float16 or bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from validation.compare.bitwise import pieces
from validation.compare.comparison import PIECE

UNIT_ROUNDOFF = 2.0**-24
"""The unit roundoff of float32, in which a right kernel accumulates."""
FLOAT8_UNIT, FLOAT8_STEP = 2.0**-13, 32
"""Unit in the last place of a float8 product's accumulator, relative to it, and products that are added at once."""
FAILURE = 1e-2
"""Probability that some element of a right output is beyond the bound."""
FEWEST = 2
"""Elements that may be beyond tolerance in any job: a share of few elements is less than one."""
LOW_PRECISION_BYTES = 2

Outputs = list[torch.Tensor]


def is_low_precision(tensor: torch.Tensor) -> bool:
    """Whether the dtype is float16, bfloat16 or a float8."""
    return tensor.is_floating_point() and tensor.element_size() <= LOW_PRECISION_BYTES


def most_beyond(elements: int, matched_ratio: float) -> int:
    """Maximum number of elements beyond tolerance, for a minimum share of all within it; 0 for a share of 1."""
    return max(FEWEST, round((1 - matched_ratio) * elements)) if matched_ratio < 1 else 0


def reduction_length(outputs: Outputs, inputs: Outputs, operations: float) -> float:
    """Estimate of the terms of one output element's sum: its share of the counted operations, which are two a term, or
    of the inputs' elements, whichever is larger."""
    count = max(sum(output.numel() for output in outputs), 1)
    return max(1.0, operations / 2 / count, sum(tensor.numel() for tensor in inputs) / count)


def relative_allowance(reference: torch.Tensor, exact: torch.Tensor, length: float, *, is_float8: bool) -> float:
    """The bound's factor of S for one output: its reference, and that in float64, of the same shape.

    `length` is n; `is_float8` says whether an input is of that dtype.
    """
    scale = root_mean_square(exact)
    squares, count = 0.0, 0
    for want, true in _finite_pieces(reference, exact):
        excess = (want - true).abs_().sub_(half_unit(true, reference.dtype)).clamp_(min=0.0)
        squares += float(excess.div_(true.abs().clamp_(min=max(scale, math.ulp(0.0)))).square_().sum())
        count += len(true)
    own = math.sqrt(squares / max(count, 1))
    deviations = math.sqrt(2 * math.log(2 * max(count, 1) / FAILURE))
    float8 = length / FLOAT8_STEP * FLOAT8_UNIT if is_float8 else 0.0
    return deviations * (math.sqrt(length) * UNIT_ROUNDOFF + own) + float8


def error_bound(true: torch.Tensor, scale: float, allowance: float, dtype: torch.dtype) -> torch.Tensor:
    """The largest error of a right output of that dtype at each true value (float64); `scale` is the output's rms."""
    return half_unit(true, dtype) + allowance * true.abs().clamp_(min=scale)


def half_unit(true: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half a unit in the last place of that dtype at each true value (float64)."""
    limits = torch.finfo(dtype)
    exponent = torch.frexp(true.abs().clamp_(min=limits.tiny)).exponent - 1
    return torch.ldexp(torch.full_like(true, limits.eps / 2), exponent)


def root_mean_square(tensor: torch.Tensor) -> float:
    """The root mean square of the finite elements, in float64; 0 where there are none."""
    squares, count = 0.0, 0
    for values, _ in _finite_pieces(tensor, tensor):
        squares += float(values.square().sum())
        count += len(values)
    return math.sqrt(squares / count) if count else 0.0


def _finite_pieces(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both tensors in pieces, in float64, where both are finite."""
    for _, left, right in pieces(one, other, PIECE):
        left, right = left.to(torch.float64), right.to(torch.float64)
        finite = left.isfinite() & right.isfinite()
        yield left[finite], right[finite]
