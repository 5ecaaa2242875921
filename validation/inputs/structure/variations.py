"""Other inputs within the structure that was found: what may differ between two draws differs, all else stays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

import torch

from sandbox.protocol.arena import stored_shape
from validation.compare.bitwise import blocks
from validation.inputs.layout import with_layout_of
from validation.inputs.structure.input_structure import (
    InputStructure,
    TensorStructure,
    fits,
    looks_discrete,
    sampled,
)
from validation.inputs.structure.properties import (
    INTEGERS,
    MOST_SORTED,
    ORDERS,
    PIECE,
    Kind,
    Property,
    row_blocks,
    row_sums,
)

LEAST = 1 / 64
"""The factor of the smallest elements of a varied input; the largest stays, those between fall with their square."""
FLATTER, SHARPER, CONCENTRATED = 1 / 8, 8.0, 0.98
"""Powers of the elements of varied rows that keep their sum, and the share of the largest element in some rows."""
SHRUNK = 1 / 8
"""The factor for rows with a sum of zero, which only scaling keeps."""
NARROW = 0.5
"""Maximum share of the range in a slice that holds values of its own kind, such as one coordinate."""
FEW_SLICES, COORDINATES = 8, 4
"""Maximum number of slices that may have ranges of their own, and of those that always belong together: ends of an edge
or an interval, corners of a triangle or a box."""


class Variation(StrEnum):
    VALUES = "values"
    SKEWED = "skewed indices"
    EQUAL = "equal indices"


def varies(structure: TensorStructure, drawn: torch.Tensor, variation: Variation) -> bool:
    """Whether that variation may change this input."""
    if not structure.variable or structure.all_fixed:
        return False
    if variation is Variation.VALUES:
        return not structure.is_whole and not looks_discrete(drawn)
    rows_share_sum = any(one.width == 1 for one in structure.find(Kind.SUM))
    # Floats with whole numbers index nothing, unless their rows are one-hot.
    if not structure.is_whole or not (drawn.dtype in INTEGERS or rows_share_sum):
        return False
    # If there are two values, such as a mask's, one alone may have no meaning.
    return variation is Variation.SKEWED or rows_share_sum or structure.high - structure.low > 1


def vary(structure: TensorStructure, drawn: torch.Tensor, variation: Variation, seed: int) -> torch.Tensor:
    """One input of a drawn set, varied within its structure; the drawn tensor itself if nothing else fits.

    The varied tensor was tested against the structure. An input that is a function of another is computed again
    by `with_relations` instead.
    """
    if not varies(structure, drawn, variation):
        return drawn
    generator = torch.Generator(device=drawn.device).manual_seed(seed)
    draw = _values if variation is Variation.VALUES else _in_blocks
    for content in draw(structure, drawn, variation, generator):
        varied = _restored(structure, drawn, content)
        if fits(structure, drawn, varied):
            return varied
    return drawn


def shuffled(structure: TensorStructure, drawn: torch.Tensor, seed: int) -> torch.Tensor:
    """One input of a drawn set with its elements or its rows in other places; zeros and what never changes stay.

    Random numbers stay what they are. The drawn tensor itself if the shuffled one lacks what was found in it.
    """
    shape = stored_shape(drawn)
    if not structure.variable or structure.all_fixed or math.prod(shape) > MOST_SORTED:
        return drawn
    stored = drawn.as_strided(shape, drawn.stride()).reshape(-1)
    moves = stored != 0 if structure.find(Kind.ZEROS) else torch.ones_like(stored, dtype=torch.bool)
    if structure.fixed is not None:
        moves &= ~structure.fixed.as_strided(shape, structure.fixed.stride()).reshape(-1)
    places = moves.nonzero()[:, 0]
    generator = torch.Generator(device=drawn.device).manual_seed(seed)
    content = stored.clone()
    content[places] = stored[places[_order(len(places), generator)]]
    contents = [content.reshape(shape)]
    if len(shape) > 1:
        by_rows = drawn.as_strided(shape, drawn.stride())
        contents.append(_chosen(by_rows, tuple(range(len(shape) - 1)), _order(math.prod(shape[:-1]), generator)))
    moved = (_restored(structure, drawn, one) for one in contents)
    unbounded = replace(structure, low=-math.inf, high=math.inf)  # A further set may exceed the first ones.
    return next((one for one in moved if fits(unbounded, drawn, one)), drawn)


def with_relations(
    structure: InputStructure, drawn: Sequence[torch.Tensor], changed: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The changed inputs, with those computed again that are functions of others."""
    result = list(changed)
    for one in structure.relations:
        source = changed[one.source]
        if source is drawn[one.source]:
            result[one.target] = drawn[one.target]
            continue
        target = drawn[one.target]
        computed = one.compute(source).to(target.dtype)
        result[one.target] = with_layout_of(target, computed.as_strided(stored_shape(target), computed.stride()))
    return result


def _values(
    structure: TensorStructure, drawn: torch.Tensor, variation: Variation, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    if structure.find(Kind.ORTHOGONAL):
        yield _turned(drawn, generator)
        return
    for one in structure.find(Kind.SUM):
        if one.value and structure.low >= 0:
            yield _with_sum(drawn, one)
    for one in structure.find(Kind.LOG_SUM):
        yield _with_sum(drawn.exp(), replace(one, value=1.0)).log_()
    if any(not one.value for one in structure.find(Kind.SUM)):
        yield _copy(drawn).mul_(SHRUNK)
        return
    uneven = _uneven(drawn, structure)
    for kind in ORDERS:
        for one in structure.find(kind):
            yield _with_norm(uneven, one)
    yield uneven


def _uneven(drawn: torch.Tensor, structure: TensorStructure) -> torch.Tensor:
    """Brings most elements near zero, or near the bound next to it, by a function of their value alone.

    It is odd, rises, and has a positive series. Order, equal elements, symmetry, zeros, bounds and positive
    definiteness (Schur's product theorem) stay.
    """
    anchor = min(max(0.0, structure.low), structure.high)
    reach = max(structure.high - anchor, anchor - structure.low)
    varied = _copy(drawn)
    for (block,) in blocks([varied], PIECE):
        distances = (block.double() if block.dtype is torch.float64 else block.float()) - anchor
        factors = (distances / reach).square_().mul_(1 - LEAST).add_(LEAST)
        moved = factors.mul_(distances).add_(anchor).to(block.dtype)
        # Half precision may round to a zero that the task never draws.
        block.copy_(torch.where((moved == 0) & (block != 0), block, moved))
    return varied


def _with_sum(drawn: torch.Tensor, one: Property) -> torch.Tensor:
    """Rows of another shape and the same sum, in turn: nearly even, peaked, nearly all in one element, as drawn."""
    varied = drawn.contiguous().clone()
    for (block,) in row_blocks([one.rows(varied)]):
        wide = block.double() if block.dtype is torch.float64 else block.float()
        number = torch.arange(wide.numel() // wide.shape[-1], device=wide.device).reshape(*wide.shape[:-1], 1) % 4
        share = wide / wide.sum(dim=-1, keepdim=True)
        power = torch.ones_like(number, dtype=wide.dtype)
        power = power.where(number != 0, FLATTER).where(number != 1, SHARPER)
        shaped = torch.where(share > 0, (share / share.amax(dim=-1, keepdim=True)).pow(power), 0.0)
        shaped = shaped / shaped.sum(dim=-1, keepdim=True)
        largest = torch.zeros_like(share).scatter_(-1, share.argmax(dim=-1, keepdim=True), 1.0)
        peaked = CONCENTRATED * largest + (1 - CONCENTRATED) * share
        # The drawn share in each element keeps it from falling to zero.
        shaped = torch.where(number == 1, 0.5 * shaped + 0.5 * share, shaped)
        block.copy_(torch.where(number == 2, peaked, shaped) * one.value)
    return varied


def _with_norm(uneven: torch.Tensor, one: Property) -> torch.Tensor:
    varied = uneven.contiguous().clone()
    for (block,) in row_blocks([one.rows(varied)]):
        norms = row_sums(block, one.kind).unsqueeze(-1)
        block.copy_((block * (one.value / norms)).to(block.dtype))
    return varied


def _turned(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same orthonormal vectors in another order, some with the opposite sign; of rotations other rotations."""
    rows, columns = (_order(size, generator) for size in drawn.shape[-2:])
    turned = drawn[..., rows, :][..., rows if len(rows) == len(columns) else columns]
    signs = torch.randint(2, (drawn.shape[-1],), generator=generator, device=drawn.device).mul_(2).sub_(1)
    signs[0] = signs[1:].prod()
    return turned * signs.to(drawn.dtype)


def _in_blocks(
    structure: TensorStructure, drawn: torch.Tensor, variation: Variation, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """`_indices` of the first element of each block, repeated within the block."""
    length = max((int(one.value) for one in structure.find(Kind.BLOCKS)), default=1)
    for content in _indices(structure, drawn[..., ::length] if length > 1 else drawn, variation, generator):
        yield content.repeat_interleave(length, dim=-1) if length > 1 else content


def _indices(
    structure: TensorStructure, drawn: torch.Tensor, variation: Variation, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Other sets of the values that were drawn: bolder ones first."""
    sums = structure.find(Kind.SUM)
    if structure.find(Kind.UNIQUE) or (sums and all(one.width == drawn.dim() for one in sums)):
        yield from _reordered(drawn, _units(drawn, by_rows=False), variation, generator)
        return
    if drawn.dim() == 1 and (structure.find(Kind.ASCENDING) or structure.find(Kind.DESCENDING)):
        if len(drawn) <= MOST_SORTED:
            steps = drawn.diff()
            rest = _order(len(steps), generator) if variation is Variation.SKEWED else steps.argsort()
            yield torch.cat([drawn[:1], drawn[0] + steps[rest].cumsum(0).to(drawn.dtype)])
        return
    if structure.find(Kind.COVERING):
        yield _covering(drawn, variation, generator)
    kinds = {one.kind for one in structure.properties} - {Kind.WHOLE, Kind.BLOCKS}
    units = _units(drawn, by_rows=bool(kinds))
    size = math.prod(drawn.shape[dimension] for dimension in units)
    if size < 2:
        return
    if variation is Variation.SKEWED and len(units) == drawn.dim():
        yield _skewed_values(drawn, generator)
        return
    if variation is Variation.EQUAL or size <= MOST_SORTED:
        one = torch.randint(size, (1,), generator=generator, device=generator.device).expand(size)
        is_skewed = variation is Variation.SKEWED
        yield _chosen(drawn, units, _skewed(_order(size, generator), size, generator) if is_skewed else one)
    yield from _reordered(drawn, units, variation, generator)


def _chosen(drawn: torch.Tensor, units: tuple[int, ...], numbers: torch.Tensor) -> torch.Tensor:
    first = tuple(range(len(units)))
    moved = drawn.movedim(units, first)
    return moved.reshape(-1, *moved.shape[len(units) :])[numbers].reshape(moved.shape).movedim(first, units)


def _skewed_values(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The values that were drawn, of a large tensor those in a sample, each as often as its Zipf-like rank says."""
    ordered = sampled(drawn, MOST_SORTED).sort().values
    distinct = ordered[torch.cat([ordered[:1] == ordered[:1], ordered.diff() != 0])]
    distinct = distinct[_order(len(distinct), generator)]
    varied = torch.empty(drawn.shape, dtype=drawn.dtype, device=drawn.device)
    for (block,) in blocks([varied], PIECE):
        block.copy_(_skewed(distinct, len(block), generator))
    return varied


def _covering(drawn: torch.Tensor, variation: Variation, generator: torch.Generator) -> torch.Tensor:
    """Each of the numbers once, and the others as `variation` says, in random places."""
    low, high = (int(end) for end in drawn.aminmax())
    distinct = _order(high - low + 1, generator).add_(low).to(drawn.dtype)
    others = drawn.numel() - len(distinct)
    is_skewed = variation is Variation.SKEWED
    rest = _skewed(distinct, others, generator) if is_skewed else distinct[:1].expand(others)
    return torch.cat([distinct, rest])[_order(drawn.numel(), generator)].reshape(drawn.shape)


def _reordered(
    drawn: torch.Tensor, units: tuple[int, ...], variation: Variation, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Permutations: of all units at random or of elements in ascending order, then of whole rows."""
    size = math.prod(drawn.shape[dimension] for dimension in units)
    if size <= MOST_SORTED:
        ascends = variation is Variation.EQUAL and len(units) == drawn.dim()
        yield _chosen(drawn, units, drawn.reshape(-1).argsort() if ascends else _order(size, generator))
    if 0 in units and drawn.dim() > 1 and len(drawn) <= MOST_SORTED:
        yield drawn[_order(len(drawn), generator)]


def _units(drawn: torch.Tensor, *, by_rows: bool) -> tuple[int, ...]:
    """The dimensions along which elements are exchangeable: all, or those of whole rows, or those of coordinates."""
    every = tuple(range(drawn.dim()))
    if drawn.dim() > 1 and _belong_together(drawn):
        return every[1:]
    if by_rows or (drawn.dim() > 1 and _belong_together(drawn.movedim(-1, 0))):
        return every[:-1]
    return every


def _belong_together(drawn: torch.Tensor) -> bool:
    """Whether slices along the first dimension are coordinates: very few, or one of few has a range of its own."""
    if not COORDINATES < len(drawn) <= FEW_SLICES:
        return 1 < len(drawn) <= COORDINATES
    rows = drawn.reshape(len(drawn), -1)
    lows, highs = rows.amin(dim=1).double(), rows.amax(dim=1).double()
    return bool(((highs - lows) < NARROW * (highs.amax() - lows.amin())).any())


def _skewed(values: torch.Tensor, draws: int, generator: torch.Generator) -> torch.Tensor:
    """Draws of the values, Zipf-like: the r-th of them comes with a probability of about 1/r."""
    count = len(values)
    exponents = torch.rand(draws, generator=generator, device=generator.device, dtype=torch.float64)
    ranks = exponents.mul_(math.log(count + 1)).exp_().floor_().long().sub_(1).clamp_(0, count - 1)
    return values[ranks]


def _order(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)


def _copy(drawn: torch.Tensor) -> torch.Tensor:
    """A copy of the same layout, without repeated elements: a view of what is stored."""
    stored = drawn.as_strided(stored_shape(drawn), drawn.stride())
    return with_layout_of(drawn, stored).as_strided(stored.shape, drawn.stride())


def _restored(structure: TensorStructure, drawn: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    """The content in the drawn tensor's layout, with the elements that never change."""
    shape = stored_shape(drawn)
    stored = content if content.shape == shape else content.as_strided(shape, content.stride())
    if structure.fixed is not None:
        fixed = structure.fixed.as_strided(shape, structure.fixed.stride())
        stored = torch.where(fixed, drawn.as_strided(shape, drawn.stride()), stored)
    return with_layout_of(drawn, stored)
