"""Sets for calls beyond those that there was time to draw: drawn ones, mixed.

A kernel that remembers answers by content would gain where sets come again. Two sets of plain random numbers, turned
into each other by a random angle, are a third one of the same spread that nobody has seen.
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
        return len(self._kept) > 1 and Nature.PLAIN in self._natures

    @cached_property
    def _natures(self) -> list[Nature]:
        """Of a set's tensors; looked at when there is something to mix, which few jobs come to."""
        return [nature(tensor) for tensor in values.leaves(self._kept[0], torch.Tensor)]

    def of(self, number: int) -> Arguments:
        """The mixed set of that number. All of its tensors are turned alike: what was a sum of others stays one."""
        choice = random.Random(derived(self._secret, "mixed", number))
        one, other = choice.sample(self._kept, 2)
        angle = choice.uniform(0.1, 0.4) * math.pi
        pairs = iter(zip(self._natures, values.leaves(other, torch.Tensor), strict=True))

        def turn(tensor: torch.Tensor) -> torch.Tensor:
            kind, second = next(pairs)
            return _turned(tensor, second, angle) if kind is Nature.PLAIN else tensor

        mixed: Arguments = values.replace(one, torch.Tensor, turn)
        return mixed


def _form(drawn: Arguments) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in values.leaves(drawn, torch.Tensor)]


def _turned(one: torch.Tensor, other: torch.Tensor, angle: float) -> torch.Tensor:
    wide = torch.float64 if one.dtype is torch.float64 else torch.float32
    first, second = (each.as_strided(stored_shape(each), each.stride()).to(wide) for each in (one, other))
    return laid_out(one, first * math.cos(angle) + second * math.sin(angle))
