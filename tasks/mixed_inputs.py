"""Sets for calls beyond those that there was time to draw: drawn ones, mixed.

A kernel that remembers answers by content would gain where sets come again. Two sets of plain random numbers, turned
into each other by a random angle, are a third one of the same spread that nobody has seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import torch

from domain import value as values
from validation.distributions import Nature, laid_out, nature
from validation.seeds import derived
from validation.tensors import stored_shape

Arguments = list[Any]

MOST, MOST_BYTES = 8, 256 << 20
"""Of the sets that are kept to be mixed."""


class MixedInputs:
    """Under the job's secret. What does not look like plain random numbers stays as it is in one of the sets."""

    def __init__(self, secret: int) -> None:
        self._secret = secret
        self._kept: list[Arguments] = []
        self._natures: list[Nature] = []

    def keep(self, sets: Iterable[Arguments]) -> None:
        """Some of the drawn ones."""
        for drawn in sets:
            tensors = values.leaves(drawn, torch.Tensor)
            if not self._kept:
                self._natures = [nature(tensor) for tensor in tensors]
            size = sum(tensor.nbytes for tensor in tensors)
            if len(self._kept) == MOST or (len(self._kept) + 1) * size > MOST_BYTES:
                return
            self._kept.append(drawn)

    @property
    def possible(self) -> bool:
        """Whether mixing gives anything new."""
        return len(self._kept) > 1 and Nature.PLAIN in self._natures

    def of(self, number: int) -> Arguments:
        """The mixed set of that number. All of its tensors are turned alike: what was a sum of others stays one."""
        choice = random.Random(derived(self._secret, "mixed", number))
        one, other = choice.sample(range(len(self._kept)), 2)
        angle = choice.uniform(0.1, 0.4) * math.pi
        tensors = values.leaves(self._kept[other], torch.Tensor)
        alike = [_form(tensor) for tensor in values.leaves(self._kept[one], torch.Tensor)] == list(map(_form, tensors))
        pairs = iter(zip(self._natures, tensors, strict=False))

        def turn(tensor: torch.Tensor) -> torch.Tensor:
            kind, second = next(pairs)
            return _turned(tensor, second, angle) if kind is Nature.PLAIN else tensor

        # Sets that differ in form are none to be mixed.
        mixed: Arguments = values.replace(self._kept[one], torch.Tensor, turn) if alike else self._kept[one]
        return mixed


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype


def _turned(one: torch.Tensor, other: torch.Tensor, angle: float) -> torch.Tensor:
    wide = torch.float64 if one.dtype is torch.float64 else torch.float32
    first, second = (each.as_strided(stored_shape(each), each.stride()).to(wide) for each in (one, other))
    return laid_out(one, first * math.cos(angle) + second * math.sin(angle))
