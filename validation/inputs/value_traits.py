"""Classifies a tensor's values, to decide whether a check may change them. It guesses, and rather refuses than
accepts."""

from __future__ import annotations

import math
from enum import StrEnum

import torch

from sandbox.protocol.arena import stored_shape
from validation.compare.bitwise import blocks

FEWEST = 16
"""Minimum number of elements to classify."""
SAMPLE, DISTINCT = 256, 0.75
MIXED = 0.1
"""Minimum share of values of each sign, for values of mixed signs; a normal distribution has a half."""
UNBOUNDED = 2.0
"""Minimum ratio of the largest magnitude to the rms, for unbounded values. A uniform distribution around zero has 1.73;
a normal one is hardly ever under 2."""
ROWS = 16
UNIFORM, SURELY = 256, 5.0
"""Minimum number of values to recognise a uniform distribution on [0, 1] by its first two moments, and the allowed
deviation of these in standard errors."""

PIECE = 1 << 22
"""Maximum values that are converted to float64 at once (32 MiB)."""


class ValueTraits(StrEnum):
    """Classes of a tensor's values; the text of a member appears in the result."""

    PLAIN = "plain random numbers"
    UNDETERMINED = "an output: its content before the call means nothing"
    NOT_FLOATING = "not a floating dtype of 16 bits or more"
    NOT_FINITE = "holds NaNs or infinities"
    NOT_DRAWN = "its content is given, not drawn"
    DECLARED_RANGE = "its contract declares a range"
    SMALL = "too few values to tell what they are"
    UNIFORM = "looks like torch.rand: maybe probabilities or lengths, so tried with small values among them alone"
    ONE_SIGN = "hardly any values of one sign: maybe variances, probabilities or lengths"
    BOUNDED = "bounded: maybe coordinates or angles"
    DISCRETE = "few distinct values: maybe a mask or levels"
    SORTED = "sorted: maybe boundaries"
    UNIT_ROWS = "rows of one norm: maybe normalised on purpose"
    SYMMETRIC = "symmetric: maybe positive definite on purpose"

    @property
    def continuous(self) -> bool:
        """Whether values changed by a rounding error still look the same."""
        drawn = self in (ValueTraits.PLAIN, ValueTraits.UNIFORM, ValueTraits.DECLARED_RANGE)
        return drawn or self in (ValueTraits.SMALL, ValueTraits.ONE_SIGN, ValueTraits.BOUNDED)


def classify_values(tensor: torch.Tensor, *, declared_normal: bool = False) -> ValueTraits:
    """Classifies a tensor's values; with `declared_normal` (a contract's randn) bounds and order are not guessed."""
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        return ValueTraits.NOT_FLOATING
    if tensor.numel() < FEWEST:
        return ValueTraits.SMALL
    stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
    if stored.numel() < FEWEST:
        return ValueTraits.SMALL
    moments = _Moments(stored)
    if not moments.all_finite:
        return ValueTraits.NOT_FINITE
    flat = stored.reshape(-1)
    sample = flat[:: max(1, flat.numel() // SAMPLE)][:SAMPLE]
    if 1 + int(sample.sort().values.diff().ne(0).sum()) < DISTINCT * sample.numel():
        return ValueTraits.DISCRETE
    if _is_uniform(moments) and _structure(stored) is ValueTraits.PLAIN:
        return ValueTraits.UNIFORM
    if not MIXED <= moments.negative_count / moments.count <= 1 - MIXED:
        return ValueTraits.ONE_SIGN
    if declared_normal:
        return ValueTraits.PLAIN
    if max(-moments.low, moments.high) < UNBOUNDED * math.sqrt(moments.mean_square):
        return ValueTraits.BOUNDED
    return _structure(stored)


class _Moments:
    """Figures of a tensor's values, made piece by piece: torch's reductions to float64 first convert all of it."""

    def __init__(self, values: torch.Tensor) -> None:
        figures = []
        for (block,) in blocks([values], PIECE):
            wide = block.to(torch.float64)
            low, high = wide.aminmax()
            negative = wide.lt(0).view(torch.int8).sum(dtype=torch.int32)
            figures.append(torch.stack([low, high, wide.sum(), negative.to(torch.float64), wide.square_().sum()]))
        lows, highs, sums, negatives, squares = torch.stack(figures, dim=-1)
        self.count = values.numel()
        self.low, self.high, self.negative_count = float(lows.amin()), float(highs.amax()), int(negatives.sum())
        self.mean, self.mean_square = float(sums.sum()) / self.count, float(squares.sum()) / self.count

    @property
    def all_finite(self) -> bool:
        """Whether no value is a NaN or an infinity: both bounds are NaN where one value is."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def _is_uniform(moments: _Moments) -> bool:
    """Whether the values look drawn by torch.rand, judged by their mean and mean square."""
    if moments.count < UNIFORM or moments.low < 0 or moments.high > 1:  # Rounding may reach 1.
        return False
    errors = SURELY / math.sqrt(moments.count)
    # A uniform distribution's values have a mean of 1/2 and a variance of 1/12, their squares 1/3 and 4/45.
    return abs(moments.mean - 1 / 2) < errors * math.sqrt(1 / 12) and abs(
        moments.mean_square - 1 / 3
    ) < errors * math.sqrt(4 / 45)


def _structure(tensor: torch.Tensor) -> ValueTraits:
    """Looks for structure in a tensor whose single values look like plain random numbers."""
    rows = tensor.reshape(-1, tensor.shape[-1])[:ROWS].to(torch.float64)
    steps = rows.diff(dim=-1)
    if steps.numel() and bool((steps >= 0).all() or (steps <= 0).all()):
        return ValueTraits.SORTED
    norms = torch.linalg.vector_norm(rows, dim=-1)
    if len(norms) > 1 and float(norms.amax() - norms.amin()) <= 2 * torch.finfo(tensor.dtype).eps * float(norms.amax()):
        return ValueTraits.UNIT_ROWS
    if tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1 and torch.equal(tensor, tensor.mT):
        return ValueTraits.SYMMETRIC
    return ValueTraits.PLAIN
