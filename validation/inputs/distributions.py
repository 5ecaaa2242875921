"""Input distributions other than the drawn one, each of a grade (docs/adr/0035). They reveal kernels that are right
only for a standard normal.

Each changes a drawn set, and keeps shapes and layouts. Plain random numbers change as a distribution says; what else
drawn sets have in common stays (validation/inputs/value_traits.py, validation/inputs/structure/).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from domain.inputs import InputGrade
from sandbox.protocol.arena import stored_shape
from validation.inputs.layout import with_layout_of
from validation.inputs.structure.variations import Variation

SMALL, LARGE = 1e-3, 30.0
OUTLIER, ONE_IN, ENDS = 100.0, 512, 4
ROWS_SHARE = 1 / 8
"""Maximum share of the rows that get an extreme last element; at least one row does."""
OFFSET = 8.0
ZEROS = 0.25
UNEVEN_SCALE, UNEVEN_SHIFT = (0.25, 0.75), 0.75

Change = Callable[[torch.Tensor, float, torch.Generator, int], torch.Tensor]


@dataclass(frozen=True)
class Distribution:
    """`change` takes a tensor as float32 or float64, its rms, a generator and the tensor's index among the changed
    ones. It may write in place.

    `grade`: how far the inputs are from the task's. `change` is for plain random numbers, `variation` for
    all other tensors. `harsh`: a right reference may overflow or divide by zero, so the distribution decides only with
    a float64 run of the reference. `tied`: many elements are equal, and the kernel may choose any of them.
    """

    name: str
    description: str
    change: Change | None = None
    grade: InputGrade = InputGrade.BEYOND
    variation: Variation | None = None
    harsh: bool = False
    tied: bool = False

    def apply(self, tensor: torch.Tensor, seed: int, number: int = 0) -> torch.Tensor:
        """Returns a changed tensor of the same shape, strides and dtype; the seed makes it repeatable."""
        if self.change is None:
            return tensor
        stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
        wide = stored.to(torch.float64 if tensor.dtype is torch.float64 else torch.float32, copy=True)
        generator = torch.Generator(device=tensor.device).manual_seed(seed)
        rms = float(torch.linalg.vector_norm(wide)) / max(wide.numel(), 1) ** 0.5
        highest = torch.finfo(tensor.dtype).max
        return with_layout_of(tensor, self.change(wide, rms, generator, number).clamp_(-highest, highest))


def _small(tensor: torch.Tensor, rms: float, _: torch.Generator, number: int) -> torch.Tensor:
    return tensor.mul_(SMALL / rms)


def _shifted_alternately(tensor: torch.Tensor, rms: float, _: torch.Generator, number: int) -> torch.Tensor:
    return tensor.sub_(_sign(number) * OFFSET * rms)


def _first_far_below(tensor: torch.Tensor, rms: float, _: torch.Generator, number: int) -> torch.Tensor:
    # Only the first input: products of several large ones would overflow float16 in right kernels.
    return tensor if number else tensor.mul_(LARGE / rms).sub_(OFFSET * LARGE)


def _sign(number: int) -> int:
    return -1 if number % 2 else 1


def _with_outliers(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    changed = tensor.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    count = max(2, flat.numel() // ONE_IN)
    signs = torch.arange(count, device=flat.device).remainder(2).mul(-2).add(1).to(flat.dtype)

    def far(count: int) -> torch.Tensor:
        # Distinct sizes avoid ties.
        sizes = torch.rand(count, generator=generator, device=flat.device).to(flat.dtype).add_(1)
        return sizes.mul_(OUTLIER * rms)

    flat[_spread_positions(flat.numel(), count, generator)] = signs * far(count)
    # Some rows along each dimension get a single outlier, at their end.
    rows = _rows(changed.shape, ENDS, generator)
    for dimension, row in rows:
        changed.movedim(dimension, -1)[row] = tensor.movedim(dimension, -1)[row]
    for dimension, row in rows:
        changed.movedim(dimension, -1)[..., -1][row] = _sign(number) * far(len(row[0]))
    flat[-1:] = _sign(number) * far(1)
    return changed


def _spread_positions(size: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Draws `count` distinct positions below `size`, ascending: one from each of `count` equal parts."""
    part = size // count
    within = torch.randint(part, (count,), generator=generator, device=generator.device)
    return torch.arange(count, device=generator.device).mul_(part).add_(within)


def _rows(shape: torch.Size, most: int, generator: torch.Generator) -> list[tuple[int, tuple[torch.Tensor, ...]]]:
    """For each dimension of several elements: the dimension, and the indexes of a few rows along it."""
    rows = []
    for dimension, length in enumerate(shape):
        others = [size for axis, size in enumerate(shape) if axis != dimension]
        if length == 1 or math.prod(others) == 1:  # The tensor is one row.
            continue
        count = min(most, max(1, int(math.prod(others) * ROWS_SHARE)))
        others = [max(size - 1, 1) for size in others]  # Leave out the last ones, where rows of other dimensions end.
        flat = _spread_positions(math.prod(others), min(count, math.prod(others)), generator)
        indexes = list[torch.Tensor]()
        for size in reversed(others):
            indexes.insert(0, flat % size)
            flat = flat // size
        rows.append((dimension, tuple(indexes)))
    return rows


def _with_zeros(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    zeros = torch.rand(tensor.shape, generator=generator, device=tensor.device).lt(ZEROS)
    # One row along each dimension is all zeros. Not more, because tasks often treat a zero sample specially.
    for dimension, row in _rows(tensor.shape, 1, generator):
        zeros.movedim(dimension, -1)[row] = True
    return tensor.masked_fill_(zeros, 0.0)


def _uneven(tensor: torch.Tensor, rms: float, generator: torch.Generator, number: int) -> torch.Tensor:
    rows = torch.rand((2, *tensor.shape[:-1], 1), generator=generator, device=tensor.device).to(tensor.dtype)
    low, high = UNEVEN_SCALE
    return tensor.mul_(rows[0].mul_(high - low).add_(low)).add_(rows[1].mul_(_sign(number) * UNEVEN_SHIFT * rms))


# The inputs as drawn. It serves for outputs that the default tolerance cannot judge; these are judged by their own
# scale.
DRAWN = Distribution(
    "drawn",
    "as they are drawn, small answers by their own size",
    grade=InputGrade.AS_DRAWN,
    harsh=True,
)
# Other means and spreads within the drawn range. A kernel that takes them for those of the standard normal, or of
# uniform noise, fails here.
UNEVEN = Distribution(
    "uneven",
    f"each row of a random input scaled by {UNEVEN_SCALE[0]:g} to {UNEVEN_SCALE[1]:g} and shifted by up to "
    f"{UNEVEN_SHIFT:g} times the rms; other inputs with most elements near zero, within what all drawn sets share",
    _uneven,
    grade=InputGrade.AS_STRUCTURED,
    variation=Variation.VALUES,
)
# As token ids and expert choices are. A sum in low precision over one index, or a buffer for an even share, fails here.
SKEWED = Distribution(
    "skewed indices",
    "whole numbers drawn anew from those of the set, a few of them most often; unique ones in another order",
    grade=InputGrade.AS_STRUCTURED,
    variation=Variation.SKEWED,
)
EQUAL = Distribution(
    "equal indices",
    "whole numbers that are all one of the set; unique ones in ascending order",
    grade=InputGrade.AS_STRUCTURED,
    variation=Variation.EQUAL,
    tied=True,
)
DISTRIBUTIONS = (
    DRAWN,
    UNEVEN,
    SKEWED,
    EQUAL,
    # The size of sqrt(epsilon) in norm layers (1e-6, 1e-5): a wrong epsilon shows (tests/mutants/rmsnorm_torch.py).
    Distribution("small", f"random inputs brought to an rms of {SMALL:g}", _small),
    # One sign: reveals maxima that begin at 0 and variances that cancel, without a float64 run too. With several inputs
    # the signs alternate, so that their products are negative.
    Distribution(
        "shifted", f"random inputs shifted by {OFFSET:g} times their rms, down and up in turn", _shifted_alternately
    ),
    # As after a ReLU or padding: a norm or a variance of zero is 0/0 without a guard.
    Distribution(
        "zeros",
        f"a share of {ZEROS:g} of a random input, and one row along each dimension, is zero",
        _with_zeros,
        harsh=True,
        tied=True,
    ),
    # Extreme single values, as in transformer activations: over 20 times the rest (Dettmers et al., LLM.int8(),
    # arXiv:2208.07339; Sun et al., Massive Activations, arXiv:2402.17762). exp() without subtracting the maximum
    # overflows, approximations saturate (tests/mutants/gelu_triton.py). Those at row ends reveal a kernel that skips
    # the last element.
    Distribution(
        "outliers",
        f"one element in {ONE_IN}, and the last of some rows, is {OUTLIER:g} to {2 * OUTLIER:g} times the rms",
        _with_outliers,
        harsh=True,
    ),
    # Reveals a maximum that begins at -20 or -100: exp() of what remains is 0.
    Distribution(
        "far below",
        f"the first random input is brought to an rms of {LARGE:g} around {-OFFSET * LARGE:g}",
        _first_far_below,
        harsh=True,
    ),
)
"""All distributions, in the order of their grades. A task of few kinds of inputs gets some of them."""


def perturbed(tensor: torch.Tensor, by: float, seed: int, *, zeros: bool = False) -> torch.Tensor:
    """Moves every element up or down by a random share of 0.5 to 1.5 times `by`, like a rounding error.

    With `zeros`, zeros move too, by that share of the tensor's rms. Layout and dtype stay. The opposite `by` moves
    every element the opposite way, so that a tie breaks to the other side.
    """
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    stored = tensor.as_strided(stored_shape(tensor), tensor.stride())
    shares = torch.rand(stored.shape, generator=generator, device=tensor.device, dtype=torch.float64).mul_(2).sub_(1)
    wide = stored.to(torch.float64, copy=True)
    steps = shares.sign().mul_(0.5).add_(shares).mul_(by)
    if zeros:
        rms = torch.linalg.vector_norm(wide) / max(wide.numel(), 1) ** 0.5
        return with_layout_of(tensor, torch.where(wide == 0, steps * rms, wide * (1 + steps)))
    return with_layout_of(tensor, wide.mul_(steps.add_(1)))
