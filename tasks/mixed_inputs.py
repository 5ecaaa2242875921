"""Sets for calls beyond those that there was time to draw: drawn ones, mixed.

A kernel that remembers answers by content would gain where sets come again. Two sets of plain random numbers, turned
into each other by a random angle and towards numbers of the referee's own, are a third one of the same spread. Without
these a kernel that is linear in its inputs could put its answer together from earlier ones. Of other numbers that lie
on one side or in bounds, each element is that of one of both sets.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch

from domain import value as values
from sandbox.arena import stored_shape
from validation.distributions import Nature, laid_out, nature
from validation.seeds import derived

Arguments = list[Any]

MOST, MOST_BYTES = 8, 256 << 20
"""Of the sets that are kept to be mixed."""
TOWARDS_NEW = 0.15 * math.pi
"""So far a set is turned towards numbers that are in none: they make up 45 % of its size."""
MIXABLE = (Nature.PLAIN, Nature.ONE_SIGN, Nature.BOUNDED)


class MixedInputs:
    """Under the job's secret. What is no random number, by its looks, stays as it is in one of the sets."""

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
        return len(self._kept) > 1 and any(kind in MIXABLE for kind in self._natures)

    @cached_property
    def _natures(self) -> list[Nature]:
        """Of a set's tensors; looked at when there is something to mix, which few jobs come to."""
        return [nature(tensor) for tensor in values.leaves(self._kept[0], torch.Tensor)]

    def of(self, number: int) -> Arguments:
        """The mixed set of that number. What is the same in all sets and no plain random numbers stays the same."""
        choice = random.Random(derived(self._secret, "mixed", number))
        one, other = choice.sample(self._kept, 2)
        angle = choice.uniform(0.1, 0.4) * math.pi
        places = iter(enumerate(zip(self._natures, values.leaves(other, torch.Tensor), strict=True)))

        def mix(tensor: torch.Tensor) -> torch.Tensor:
            place, (kind, second) = next(places)
            if kind not in MIXABLE:
                return tensor
            first, last = (each.as_strided(stored_shape(each), each.stride()) for each in (tensor, second))
            drawn = torch.Generator(tensor.device).manual_seed(derived(self._secret, "mixed", number, place))
            return laid_out(
                tensor, _turned(first, last, angle, drawn) if kind is Nature.PLAIN else _either(first, last, drawn)
            )

        mixed: Arguments = values.replace(one, torch.Tensor, mix)
        return mixed


def _form(drawn: Arguments) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in values.leaves(drawn, torch.Tensor)]


def _turned(one: torch.Tensor, other: torch.Tensor, angle: float, drawn: torch.Generator) -> torch.Tensor:
    wide = torch.float64 if one.dtype is torch.float64 else torch.float32
    turned = one.to(wide) * math.cos(angle) + other.to(wide) * math.sin(angle)
    new = torch.randn(one.shape, generator=drawn, device=one.device, dtype=wide)
    size = torch.linalg.vector_norm(turned) / math.sqrt(turned.numel())
    return turned.mul_(math.cos(TOWARDS_NEW)).add_(new.mul_(size * math.sin(TOWARDS_NEW)))


def _either(one: torch.Tensor, other: torch.Tensor, drawn: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(one.shape, generator=drawn, device=one.device) < 0.5, one, other)
