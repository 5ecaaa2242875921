"""Sets for calls beyond those that there was time to draw: drawn ones, mixed.

A kernel that remembers answers by content would gain where sets come again. Two sets of plain random numbers, turned
into each other by a random angle and each element made larger or smaller by a factor of its own, are a third one of the
same spread. Without the factors a kernel that is linear in its inputs could put its answer together from earlier ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch

from domain import value as values
from sandbox.protocol.arena import stored_shape
from validation.inputs.distributions import with_layout_of
from validation.inputs.value_traits import ValueTraits, classify_values
from validation.seeds import derive_seed

Arguments = list[Any]

MOST, MOST_BYTES = 8, 256 << 20
"""Of the sets that are kept to be mixed."""
FACTORS = (0.25, 1.75)
"""Between which each element's lies: what they differ by makes up 40 % of a set's size."""


class MixedInputs:
    """Under the job's secret. What does not look like plain random numbers stays as it is in one of the sets."""

    def __init__(self, secret: int) -> None:
        self._secret = secret
        self._kept: list[Arguments] = []

    def keep(self, sets: Iterable[Arguments]) -> None:
        """Some of the drawn ones, all of the form of the first."""
        for drawn in sets:
            size = sum(tensor.nbytes for tensor in values.leaves(drawn, torch.Tensor))
            if len(self._kept) == MOST or (len(self._kept) + 1) * size > MOST_BYTES:
                return
            if not self._kept or _form(drawn) == _form(self._kept[0]):
                self._kept.append(drawn)

    @property
    def possible(self) -> bool:
        """Whether mixing gives anything new."""
        return len(self._kept) > 1 and ValueTraits.PLAIN in self._natures

    @cached_property
    def _natures(self) -> list[ValueTraits]:
        """Of a set's tensors; looked at when there is something to mix, which few jobs come to."""
        return [classify_values(tensor) for tensor in values.leaves(self._kept[0], torch.Tensor)]

    def of(self, number: int) -> Arguments:
        """The mixed set of that number.

        All of its tensors are turned alike, and those of one shape have the same factors: what was equal to another, or
        the sum of others, stays so.
        """
        choice = random.Random(derive_seed(self._secret, "mixed", number))
        one, other = choice.sample(self._kept, 2)
        angle = choice.uniform(0.1, 0.4) * math.pi
        pairs = iter(zip(self._natures, values.leaves(other, torch.Tensor), strict=True))

        def mix(tensor: torch.Tensor) -> torch.Tensor:
            kind, second = next(pairs)
            if kind is not ValueTraits.PLAIN:
                return tensor
            seed = derive_seed(self._secret, "factors", number, *tensor.shape)
            return _mixed(tensor, second, angle, torch.Generator(tensor.device).manual_seed(seed))

        mixed: Arguments = values.replace(one, torch.Tensor, mix)
        return mixed


def _form(drawn: Arguments) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in values.leaves(drawn, torch.Tensor)]


def _mixed(one: torch.Tensor, other: torch.Tensor, angle: float, drawn: torch.Generator) -> torch.Tensor:
    wide = torch.float64 if one.dtype is torch.float64 else torch.float32
    first, second = (each.as_strided(stored_shape(each), each.stride()).to(wide) for each in (one, other))
    turned = first * math.cos(angle) + second * math.sin(angle)
    low, high = FACTORS
    factors = torch.rand(turned.shape, generator=drawn, device=one.device, dtype=wide).mul_(high - low).add_(low)
    size = math.sqrt((low * low + low * high + high * high) / 3)
    return with_layout_of(one, turned.mul_(factors.div_(size)))
