"""Finds the structure that all drawn sets of a task's inputs share, from a few of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from sandbox.protocol.arena import stored_shape
from validation.compare.bitwise import blocks, count_true
from validation.inputs.structure.properties import (
    FLOATS,
    INTEGERS,
    OF_ROWS,
    PIECE,
    Kind,
    Property,
    holds,
    properties_of,
)
from validation.inputs.structure.relations import Relation, relations_of

FEWEST = 16
"""Minimum elements of an input that is varied; fewer are parameters, such as a scale."""
SAMPLE, DISTINCT = 256, 0.75
"""Values that are looked at for distinct ones, and the minimum share of distinct ones for random numbers."""
SAMPLED_CHANCES = 4096
"""Values from which the share of elements that are equal by chance is estimated."""
TWICE, DEVIATIONS, FEWER = 2.0, 4.0, 0.6
"""A pattern has TWICE as many elements that never change as chance would leave, and at least DEVIATIONS standard
deviations more. FEWER is the share of those that chance changes."""
STRIDE = 0.6180339887
"""Share of a tensor between two samples: such steps meet all rows and columns, where even ones may meet one column."""


@dataclass(frozen=True, eq=False)
class TensorStructure:
    """The structure of one input in all sets. `fixed` marks elements with one value in all of them."""

    low: float
    high: float
    properties: frozenset[Property]
    fixed: torch.Tensor | None = None
    all_fixed: bool = False
    variable: bool = True
    """Whether it may vary at all: finite numbers of a usual dtype, and enough of them."""

    def find(self, kind: Kind) -> list[Property]:
        """Its properties of that kind."""
        return [one for one in self.properties if one.kind is kind]

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers, which may be indices."""
        return bool(self.find(Kind.WHOLE))


@dataclass(frozen=True, eq=False)
class InputStructure:
    """The structure of each input, in order, and the inputs that are functions of others."""

    tensors: tuple[TensorStructure, ...]
    relations: tuple[Relation, ...] = ()

    def relation_of(self, target: int) -> Relation | None:
        """The relation that computes this input, if there is one."""
        return next((one for one in self.relations if one.target == target), None)


def find_structure(sets: Iterable[Sequence[torch.Tensor]]) -> InputStructure:
    """Finds the structure that all sets share. Each has the same tensors; SETS are enough.

    Holds the first set and one more at a time, and a mask of the elements that never change.
    """
    iterator = iter(sets)
    first = next(iterator)
    tensors = [_of_one(tensor) for tensor in first]
    relations = relations_of(first)
    masks: list[torch.Tensor | None] = [None] * len(first)
    count = 1
    for count, drawn in enumerate(iterator, start=2):
        for number, (tensor, other) in enumerate(zip(first, drawn, strict=True)):
            tensors[number] = _common(tensors[number], other)
            masks[number] = _still_equal(masks[number] if count > 2 else None, tensor, other, first_time=count == 2)
        relations = [one for one in relations if one.holds(drawn)]
    if count > 1:
        tensors = [_with_fixed(*one, sets=count) for one in zip(tensors, masks, first, strict=True)]
    return InputStructure(tuple(tensors), tuple(relations))


def fits(structure: TensorStructure, drawn: torch.Tensor, varied: torch.Tensor) -> bool:
    """Whether a varied input has all that was found in the drawn ones."""
    low, high = _bounds(varied)
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    # A row that keeps its sum or norm may concentrate it in one element; its signs stay.
    concentrates = not structure.is_whole and any(one.kind in OF_ROWS for one in structure.properties)
    inside = (structure.low < 0 or low >= 0) and (structure.high > 0 or high <= 0)
    if not (inside if concentrates else structure.low <= low and high <= structure.high):
        return False
    fixed = structure.fixed
    if fixed is not None and bool(((drawn != varied) & fixed).any()):
        return False
    return all(holds(one, varied) for one in structure.properties)


def sampled(tensor: torch.Tensor, most: int = SAMPLE) -> torch.Tensor:
    """Up to `most` of the elements, in flat order, from everywhere in the tensor."""
    size = tensor.numel()
    step = max(1, int(size * STRIDE))
    while math.gcd(step, size) > 1:  # No element twice.
        step += 1
    places = torch.arange(min(most, size)).mul_(step).remainder_(size).to(tensor.device)
    indexes: list[torch.Tensor] = []
    for length in reversed(tensor.shape):
        indexes.insert(0, places % length)
        places = places // length
    return tensor[tuple(indexes)]


def _of_one(tensor: torch.Tensor) -> TensorStructure:
    if tensor.dtype not in FLOATS and tensor.dtype not in INTEGERS:
        return TensorStructure(0.0, 0.0, frozenset(), variable=False)
    if math.prod(stored_shape(tensor)) < FEWEST:
        return TensorStructure(0.0, 0.0, frozenset(), variable=False)
    low, high = _bounds(tensor)
    if not (math.isfinite(low) and math.isfinite(high)):
        return TensorStructure(low, high, frozenset(), variable=False)
    return TensorStructure(low, high, frozenset(properties_of(tensor)))


def _common(structure: TensorStructure, other: torch.Tensor) -> TensorStructure:
    if not structure.variable:
        return structure
    low, high = _bounds(other)
    if not (math.isfinite(low) and math.isfinite(high)):
        return replace(structure, variable=False)
    common = frozenset(one for one in structure.properties if holds(one, other))
    return replace(structure, low=min(structure.low, low), high=max(structure.high, high), properties=common)


def _bounds(tensor: torch.Tensor) -> tuple[float, float]:
    """Smallest and largest element; NaN where one is."""
    lows, highs = zip(*(block.aminmax() for (block,) in blocks([tensor], PIECE)), strict=True)
    return float(torch.stack(lows).amin()), float(torch.stack(highs).amax())


def _still_equal(
    mask: torch.Tensor | None, one: torch.Tensor, other: torch.Tensor, *, first_time: bool
) -> torch.Tensor | None:
    """The elements that are equal in all sets until now; None if there are none."""
    if mask is None and not first_time:
        return None
    if one.dtype not in FLOATS and one.dtype not in INTEGERS:
        return None
    equal = one == other
    if mask is not None:
        equal &= mask
    return equal if bool(equal.any()) else None


def _with_fixed(
    structure: TensorStructure, mask: torch.Tensor | None, drawn: torch.Tensor, *, sets: int
) -> TensorStructure:
    if mask is None or not structure.variable:
        return structure
    share = count_true(mask) / mask.numel()
    if share == 1:
        return replace(structure, fixed=mask, all_fixed=True)
    # Sets of few values share many by chance.
    values = sampled(drawn, SAMPLED_CHANCES).double().sort().values
    counts = torch.searchsorted(values, values, right=True) - torch.searchsorted(values, values)
    by_chance = float((counts / len(values)).pow(sets - 1).mean())
    highest = TWICE * by_chance + DEVIATIONS * math.sqrt(by_chance / mask.numel())
    if share <= highest and 1 - share >= FEWER * (1 - by_chance):
        return structure
    return replace(structure, fixed=mask)


def looks_discrete(tensor: torch.Tensor) -> bool:
    """Whether few of the values that are not zero differ: a mask, or levels."""
    stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
    values = sampled(stored)
    values = values[values != 0]
    if len(values) < FEWEST:
        others = stored[stored != 0]
        values = sampled(others) if len(others) else others
    return len(values) < FEWEST or 1 + int(values.sort().values.diff().ne(0).sum()) < DISTINCT * len(values)


def describe(structure: TensorStructure, drawn: torch.Tensor) -> str:
    """The structure in words; empty if none was found."""
    if structure.all_fixed:
        return "the same in every set"
    implied = {one for one in structure.properties if any(other.implies(one) for other in structure.properties)}
    implied.update(sorted(structure.find(Kind.BLOCKS), key=lambda one: one.value)[:-1])
    properties = sorted(
        str(one)
        for one in structure.properties.difference(implied)
        if one.kind is not Kind.ZEROS or structure.fixed is None
    )
    if structure.fixed is not None:
        properties.append(_pattern(structure.fixed & (drawn == 0)) or "some elements the same in every set")
    return ", ".join(properties)


def _pattern(zeros: torch.Tensor) -> str:
    """The name of a pattern of zeros, over all matrices of a batch."""
    if not bool(zeros.any()):
        return ""
    if zeros.dim() > 1:
        places = (~zeros).reshape(-1, *zeros.shape[-2:]).any(dim=0).nonzero()
        offsets = places[:, 1] - places[:, 0]
        below, above = (int(offsets.amin()), int(offsets.amax())) if len(offsets) else (0, 0)
        rows, columns = zeros.shape[-2:]
        if below >= 0 or above <= 0:
            return "diagonal" if below == above == 0 else "upper triangular" if below >= 0 else "lower triangular"
        if 2 * (above - below + 1) <= rows + columns:
            return "banded"
    return "the same zeros in every set"
