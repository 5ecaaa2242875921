"""Input distributions beyond the drawn one, for what a kernel gets wrong that only ever saw a standard normal.

They are made of a drawn set, so that shapes, layouts and everything that is no plain random number stay as they were.
Which tensors may be changed at all is a guess from their values, and a cautious one (`nature`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch

from domain.value import TensorRef
from sandbox.arena import stored_shape
from validation import poison
from validation.dtypes import wire_name

SMALL, LARGE = 1e-3, 30.0
OUTLIER, ONE_IN, ENDS = 100.0, 512, 4
ROWS_SHARE = 1 / 8
"""Of all rows at most that are singled out, or one of a few."""
OFFSET = 8.0
ZEROS = 0.25

FEWEST = 16
"""Elements below which values do not tell what they stand for."""
SAMPLE, DISTINCT = 256, 0.75
MIXED = 0.1
"""Of either sign at least that share: a normal has a half."""
UNBOUNDED = 2.0
"""Largest magnitude over the rms: 1.73 for a uniform distribution around zero, under 2 hardly ever for a normal one."""
ROWS = 16


class Nature(StrEnum):
    """What a tensor's values look like; the words are the answer's."""

    PLAIN = "plain random numbers"
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
    UNIT_ROWS = "rows of one norm: maybe normalised on purpose"
    SYMMETRIC = "symmetric: maybe positive definite on purpose"

    @property
    def continuous(self) -> bool:
        """Whether a relative change of rounding size leaves it what it is."""
        return self in (Nature.PLAIN, Nature.DECLARED_RANGE, Nature.SMALL, Nature.ONE_SIGN, Nature.BOUNDED)


Change = Callable[[torch.Tensor, float, torch.Generator, int], torch.Tensor]


@dataclass(frozen=True)
class Distribution:
    """`change` takes a tensor as float32 or float64, its root mean square, a generator and its number among the changed
    ones; it may write in place.

    A `harsh` one leads to where a right reference may overflow or divide by zero: it decides only with a float64 run of
    the reference. In a `tied` one many elements are equal, of which any may be chosen.
    """

    name: str
    about: str
    change: Change
    harsh: bool = False
    tied: bool = False

    def of(self, tensor: torch.Tensor, seed: int, number: int = 0) -> torch.Tensor:
        """A tensor of the same shape, strides and dtype, under that seed."""
        stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
        wide = stored.to(torch.float64 if tensor.dtype is torch.float64 else torch.float32, copy=True)
        generator = torch.Generator(device=tensor.device).manual_seed(seed)
        rms = float(torch.linalg.vector_norm(wide)) / max(wide.numel(), 1) ** 0.5
        highest = torch.finfo(tensor.dtype).max
        return laid_out(tensor, self.change(wide, rms, generator, number).clamp_(-highest, highest))


def _scaled(to: float) -> Change:
    return lambda tensor, rms, _, number: tensor.mul_(to / rms)


def _shifted(by: float) -> Change:
    return lambda tensor, rms, _, number: tensor.add_(by * rms)


def _shifted_in_turn(by: float) -> Change:
    return lambda tensor, rms, _, number: tensor.add_(_sign(number) * by * rms)


def _first_far_below(tensor: torch.Tensor, rms: float, _: torch.Generator, number: int) -> torch.Tensor:
    # One alone: products of several so large would leave float16's range in kernels that are right.
    return tensor if number else tensor.mul_(LARGE / rms).sub_(OFFSET * LARGE)


def _sign(number: int) -> int:
    return -1 if number % 2 else 1


def _with_outliers(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    made = tensor.clone(memory_format=torch.contiguous_format)
    flat = made.view(-1)
    count = max(2, flat.numel() // ONE_IN)
    signs = torch.arange(count, device=flat.device).remainder(2).mul(-2).add(1).to(flat.dtype)

    def far(count: int) -> torch.Tensor:
        # Of different sizes, so that no two tie.
        sizes = torch.rand(count, generator=generator, device=flat.device).to(flat.dtype).add_(1)
        return sizes.mul_(OUTLIER * rms)

    flat[_apart(flat.numel(), count, generator)] = signs * far(count)
    # At the end of some rows along each dimension is their only one.
    rows = _rows(made.shape, ENDS, generator)
    for dimension, row in rows:
        made.movedim(dimension, -1)[row] = tensor.movedim(dimension, -1)[row]
    for dimension, row in rows:
        made.movedim(dimension, -1)[..., -1][row] = _sign(number) * far(len(row[0]))
    flat[-1:] = _sign(number) * far(1)
    return made


def _apart(size: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """So many different places of that many, in order: one in each of as many parts."""
    part = size // count
    within = torch.randint(part, (count,), generator=generator, device=generator.device)
    return torch.arange(count, device=generator.device).mul_(part).add_(within)


def _rows(shape: torch.Size, most: int, generator: torch.Generator) -> list[tuple[int, tuple[torch.Tensor, ...]]]:
    """Each dimension along which there are many, and where some of them lie by the other dimensions."""
    found = []
    for dimension, length in enumerate(shape):
        others = [size for place, size in enumerate(shape) if place != dimension]
        if length == 1 or math.prod(others) == 1:  # All of it is that one row.
            continue
        count = min(most, max(1, int(math.prod(others) * ROWS_SHARE)))
        others = [max(size - 1, 1) for size in others]  # Not the last ones, where rows along others end.
        flat = _apart(math.prod(others), min(count, math.prod(others)), generator)
        places = list[torch.Tensor]()
        for size in reversed(others):
            places.insert(0, flat % size)
            flat = flat // size
        found.append((dimension, tuple(places)))
    return found


def _constant_rows(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    return tensor[..., :1].expand(tensor.shape).contiguous()


def _with_zeros(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    zeros = torch.rand(tensor.shape, generator=generator, device=tensor.device).lt(ZEROS)
    # Along each dimension one row is zero throughout: no more, as a sample of zeros is a case that tasks set apart.
    for dimension, row in _rows(tensor.shape, 1, generator):
        zeros.movedim(dimension, -1)[row] = True
    return tensor.masked_fill_(zeros, 0.0)


# Not another one: for answers of which the tolerance tells nothing, which are counted by their own size here.
DRAWN = Distribution(
    "drawn", "as they are drawn, small answers by their own size", lambda tensor, *_: tensor, harsh=True
)
DISTRIBUTIONS = (
    # The size of sqrt(epsilon) in norm layers (1e-6, 1e-5), where another epsilon is another answer.
    Distribution("small", f"random inputs brought to an rms of {SMALL:g}", _scaled(SMALL)),
    # All positive and all negative: maxima that begin at 0, variances that cancel, means that are not zero. Of several
    # inputs the signs differ in the second one, so that all their products are negative.
    Distribution("positive", f"random inputs shifted up by {OFFSET:g} times their rms", _shifted(OFFSET)),
    Distribution(
        "negative",
        f"random inputs shifted by {OFFSET:g} times their rms, down and up in turn",
        _shifted_in_turn(-OFFSET),
    ),
    # A variance of zero, where a division without an epsilon is 0/0.
    Distribution("constant rows", "every row of a random input has one value", _constant_rows, harsh=True, tied=True),
    # What a ReLU or padding leaves: a norm of zero, where a division without a guard is 0/0, and zeros taken for gaps.
    Distribution(
        "zeros",
        f"a share of {ZEROS:g} of a random input, and one row along each dimension, is zero",
        _with_zeros,
        harsh=True,
        tied=True,
    ),
    # exp() without a maximum taken off overflows from 89 in float32 and from 11 in float16; saturated approximations.
    Distribution("large", f"random inputs brought to an rms of {LARGE:g}", _scaled(LARGE), harsh=True),
    # Single values far out, as transformers' activations have: 20 times the rest and more (Dettmers et al., LLM.int8(),
    # arXiv:2208.07339; Sun et al., Massive Activations, arXiv:2402.17762). Also against sums extrapolated from a part,
    # and, at the ends of some rows and columns, against a last element that is left out where it hardly weighs.
    Distribution(
        "outliers",
        f"one element in {ONE_IN}, and the last of some rows, is {OUTLIER:g} to {2 * OUTLIER:g} times the rms",
        _with_outliers,
        harsh=True,
    ),
    # exp() of what a maximum that begins at 0 leaves is 0 there, and -20 or -100 is not below everything.
    Distribution(
        "far below",
        f"the first random input is brought to an rms of {LARGE:g} around {-OFFSET * LARGE:g}",
        _first_far_below,
        harsh=True,
    ),
)


def nature(tensor: torch.Tensor, *, declared_normal: bool = False) -> Nature:
    """What the values look like; with `declared_normal` (a contract's randn) bounds and order are not guessed."""
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        return Nature.NOT_FLOATING
    if tensor.numel() < FEWEST:
        return Nature.SMALL
    stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
    if stored.numel() < FEWEST:
        return Nature.SMALL
    if not bool(stored.isfinite().all()):
        return Nature.NOT_FINITE
    flat = stored.reshape(-1)
    sample = flat[:: max(1, flat.numel() // SAMPLE)][:SAMPLE]
    if 1 + int(sample.sort().values.diff().ne(0).sum()) < DISTINCT * sample.numel():
        return Nature.DISCRETE
    if not MIXED <= float((flat < 0).sum()) / flat.numel() <= 1 - MIXED:
        return Nature.ONE_SIGN
    if declared_normal:
        return Nature.PLAIN
    wide = torch.float64 if flat.dtype is torch.float64 else torch.float32
    rms = float(torch.linalg.vector_norm(flat, dtype=wide)) / flat.numel() ** 0.5
    if float(flat.abs().amax()) < UNBOUNDED * rms:
        return Nature.BOUNDED
    return _structure(stored)


def _structure(tensor: torch.Tensor) -> Nature:
    """Of a tensor whose single values look like plain random numbers."""
    rows = tensor.reshape(-1, tensor.shape[-1])[:ROWS].to(torch.float64)
    steps = rows.diff(dim=-1)
    if steps.numel() and bool((steps >= 0).all() or (steps <= 0).all()):
        return Nature.SORTED
    norms = torch.linalg.vector_norm(rows, dim=-1)
    if len(norms) > 1 and float(norms.amax() - norms.amin()) <= 2 * torch.finfo(tensor.dtype).eps * float(norms.amax()):
        return Nature.UNIT_ROWS
    if tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1 and torch.equal(tensor, tensor.mT):
        return Nature.SYMMETRIC
    return Nature.PLAIN


def moved(tensor: torch.Tensor, by: float, seed: int, *, zeros: bool = False) -> torch.Tensor:
    """Every element a share of half to one and a half times `by` up or down, at random: what rounding does to it.

    `zeros`: these too, by that share of the tensor's root mean square. Same layout and dtype. The opposite `by` moves
    every element the opposite way, so that a tie which one breaks to one side the other breaks to the other.
    """
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
    shares = torch.rand(stored.shape, generator=generator, device=tensor.device, dtype=torch.float64).mul_(2).sub_(1)
    wide = stored.to(torch.float64, copy=True)
    steps = shares.sign().mul_(0.5).add_(shares).mul_(by)
    if zeros:
        rms = torch.linalg.vector_norm(wide) / max(wide.numel(), 1) ** 0.5
        return laid_out(tensor, torch.where(wide == 0, steps * rms, wide * (1 + steps)))
    return laid_out(tensor, wide.mul_(steps.add_(1)))


def laid_out(like: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """`stored` in the memory layout and dtype of `like`; gaps hold poison."""
    ref = TensorRef(wire_name(like.dtype), tuple(like.shape), like.stride())
    memory = torch.empty(ref.span // like.element_size(), dtype=like.dtype, device=like.device)
    poison.fill(memory)
    tensor = memory.as_strided(like.shape, like.stride())
    tensor.as_strided(stored.shape, like.stride()).copy_(stored)
    return tensor
