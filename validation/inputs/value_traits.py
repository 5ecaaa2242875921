"""Classifies a tensor's values, to decide whether a check may change them. It guesses, and rather refuses than
accepts."""

from __future__ import annotations

import math
from enum import StrEnum

import torch

from sandbox.protocol.arena import stored_shape
from validation.compare.bitwise import blocks
from validation.inputs.structure.input_structure import TensorStructure, looks_discrete
from validation.inputs.structure.properties import Kind, properties_of

FEWEST = 16
"""Minimum number of elements to classify."""
MIXED = 0.1
"""Minimum share of values of each sign, for values of mixed signs; a normal distribution has a half."""
UNBOUNDED = 2.0
"""Minimum ratio of the largest magnitude to the rms, for unbounded values. A uniform distribution around zero has 1.73;
a normal one is hardly ever under 2."""

PIECE = 1 << 22
"""Maximum values that are converted to float64 at once (32 MiB)."""


class ValueTraits(StrEnum):
    """Classes of a tensor's values; the text of a member appears in the result."""

    PLAIN = "plain random numbers"
    SPARSE = "plain random numbers but for zeros, which stay"
    UNDETERMINED = "an output: its content before the call means nothing"
    NOT_FLOATING = "not a floating dtype of 16 bits or more"
    NOT_FINITE = "holds NaNs or infinities"
    NOT_DRAWN = "its content is given, not drawn"
    DECLARED_RANGE = "its contract declares a range"
    SMALL = "too few values to tell what they are"
    ONE_SIGN = "hardly any values of one sign: maybe variances, probabilities or lengths"
    BOUNDED = "bounded: maybe coordinates or angles"
    DISCRETE = "few distinct values: maybe a mask or levels"
    SORTED = "sorted: maybe boundaries"
    STRUCTURED = "has a structure that all drawn sets share"

    @property
    def random(self) -> bool:
        """Whether other random numbers mean as much."""
        return self in (ValueTraits.PLAIN, ValueTraits.SPARSE)

    @property
    def continuous(self) -> bool:
        """Whether values changed by a rounding error still look the same."""
        drawn = self in (ValueTraits.STRUCTURED, ValueTraits.DECLARED_RANGE)
        return self.random or drawn or self in (ValueTraits.SMALL, ValueTraits.ONE_SIGN, ValueTraits.BOUNDED)


def classify_values(
    tensor: torch.Tensor, structure: TensorStructure | None = None, *, declared_normal: bool = False
) -> ValueTraits:
    """Classifies a tensor's values, by what all drawn sets have in common or else by this one.

    With `declared_normal` (a contract's randn) bounds and order are not guessed.
    """
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
    if looks_discrete(stored):
        return ValueTraits.DISCRETE
    mixed = MIXED <= moments.negative_count / moments.count <= 1 - MIXED
    if declared_normal:
        return ValueTraits.PLAIN if mixed else ValueTraits.ONE_SIGN
    kind = _structure(tensor, structure)
    if kind.random and not mixed:
        return ValueTraits.ONE_SIGN
    if kind.random and max(-moments.low, moments.high) < UNBOUNDED * math.sqrt(moments.mean_square):
        return ValueTraits.BOUNDED
    return kind


def _structure(tensor: torch.Tensor, structure: TensorStructure | None) -> ValueTraits:
    if structure is None:  # One row alone has any value of its own.
        found = [one for one in properties_of(tensor) if one.value in (0, 1) or len(one.rows(tensor).shape) > 1]
    else:
        found = list(structure.properties)
    kinds = {one.kind for one in found}
    if kinds & {Kind.ASCENDING, Kind.DESCENDING}:
        return ValueTraits.SORTED
    has_pattern = structure is not None and structure.fixed is not None and not structure.all_fixed
    if has_pattern or kinds - {Kind.ZEROS}:
        return ValueTraits.STRUCTURED
    return ValueTraits.SPARSE if kinds else ValueTraits.PLAIN


class _Moments:
    """Figures of a tensor's values but zeros, piece by piece: torch's reductions to float64 first convert all of it."""

    def __init__(self, values: torch.Tensor) -> None:
        figures = []
        for (block,) in blocks([values], PIECE):
            wide = block.to(torch.float64)
            low, high = wide.aminmax()
            negative = wide.lt(0).view(torch.int8).sum(dtype=torch.int32)
            count = wide.count_nonzero()
            figures.append(torch.stack([low, high, count.double(), negative.double(), wide.square_().sum()]))
        lows, highs, counts, negatives, squares = torch.stack(figures, dim=-1)
        self.count = max(int(counts.sum()), 1)
        self.low, self.high, self.negative_count = float(lows.amin()), float(highs.amax()), int(negatives.sum())
        self.mean_square = float(squares.sum()) / self.count

    @property
    def all_finite(self) -> bool:
        """Whether no value is a NaN or an infinity: both bounds are NaN where one value is."""
        return math.isfinite(self.low) and math.isfinite(self.high)
