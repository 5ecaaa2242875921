"""Input distributions beyond the drawn one, for what a kernel gets wrong that only ever saw a standard normal.

They are made of a drawn set, so that shapes, layouts and everything that is no plain random number stay as they were.
Which tensors may be changed at all is told by their values (validation/inputs/value_traits.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from domain.value import TensorRef
from sandbox.protocol.arena import stored_shape
from validation.dtypes import wire_name
from validation.inputs import poison_fill
from validation.inputs.value_traits import Nature

SMALL, LARGE = 1e-3, 30.0
OUTLIER, ONE_IN, ENDS = 100.0, 512, 4
ROWS_SHARE = 1 / 8
"""Of all rows at most that are singled out, or one of a few."""
OFFSET = 8.0
ZEROS = 0.25
SPARSE_SHARE, SPARSE_SCALE = 1 / 8, 0.01

Change = Callable[[torch.Tensor, float, torch.Generator, int], torch.Tensor]


@dataclass(frozen=True)
class Distribution:
    """`change` takes a tensor as float32 or float64, its root mean square, a generator and its number among the changed
    ones; it may write in place.

    It is made of tensors of that nature, all others stay. A `harsh` one leads to where a right reference may overflow
    or divide by zero: it decides only with a float64 run of the reference. In a `tied` one many elements are equal, of
    which any may be chosen.
    """

    name: str
    about: str
    change: Change
    made_of: Nature = Nature.PLAIN
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


def _sparse(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    kept = torch.rand(tensor.shape, generator=generator, device=tensor.device).lt(SPARSE_SHARE)
    return torch.where(kept, tensor, tensor * SPARSE_SCALE)


# Not another one: for answers of which the tolerance tells nothing, which are counted by their own size here.
DRAWN = Distribution(
    "drawn", "as they are drawn, small answers by their own size", lambda tensor, *_: tensor, harsh=True
)
# Another mean and another spread, within the range and without ties: means that are put in place of what was to be
# computed, and variances that are known beforehand, are right of uniform noise alone.
SPARSE = Distribution(
    "sparse",
    f"but for one in {1 / SPARSE_SHARE:g}, elements of what looks like torch.rand are {SPARSE_SCALE:g} times as large",
    _sparse,
    made_of=Nature.UNIFORM,
    harsh=True,
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
    poison_fill.fill(memory)
    tensor = memory.as_strided(like.shape, like.stride())
    tensor.as_strided(stored.shape, like.stride()).copy_(stored)
    return tensor
