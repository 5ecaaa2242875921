"""Mixes drawn input sets into new ones, for calls for which there was no time to draw.

A kernel that recognises inputs and replays outputs would gain if sets were repeated. A mixed set has the same spread as
the two sets of plain random numbers that it is made of. The mixer rotates them into each other by a random angle, and
scales each element by a random factor. Without the factors, a kernel that is linear in its inputs could combine its
outputs from earlier ones.
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
from validation.inputs.layout import with_layout_of, with_zeros_of
from validation.inputs.structure.input_structure import InputStructure, find_structure
from validation.inputs.structure.properties import SETS
from validation.inputs.structure.variations import with_relations
from validation.inputs.value_traits import ValueTraits, classify_values
from validation.seeds import derive_seed

Arguments = list[Any]

MOST, MOST_BYTES = 8, 256 << 20
"""Maximum number, and maximum total bytes, of the sets that are stored for mixing."""
FACTORS = (0.25, 1.75)
"""Range of each element's random factor: the variation that it adds is 40 % of a set's size."""


class MixedInputs:
    """Mixes under the job's secret. A tensor that does not look like plain random numbers is taken from one set."""

    def __init__(self, secret: int) -> None:
        self._secret = secret
        self._stored: list[Arguments] = []

    def store(self, sets: Iterable[Arguments]) -> None:
        """Store some of the drawn sets; all have the form of the first."""
        for drawn in sets:
            size = sum(tensor.nbytes for tensor in values.leaves(drawn, torch.Tensor))
            if len(self._stored) == MOST or (len(self._stored) + 1) * size > MOST_BYTES:
                return
            if not self._stored or _form(drawn) == _form(self._stored[0]):
                self._stored.append(drawn)

    @property
    def possible(self) -> bool:
        """Whether mixing produces anything new."""
        return len(self._stored) > 1 and any(kind.random for kind in self._traits)

    @cached_property
    def _structure(self) -> InputStructure:
        """The structure that the stored sets share, computed on first use, because few jobs mix."""
        return find_structure(values.leaves(drawn, torch.Tensor) for drawn in self._stored[:SETS])

    @cached_property
    def _traits(self) -> list[ValueTraits]:
        tensors = values.leaves(self._stored[0], torch.Tensor)
        return [classify_values(*pair) for pair in zip(tensors, self._structure.tensors, strict=True)]

    def of(self, number: int) -> Arguments:
        """The mixed set of that number.

        All its tensors rotate by the same angle, and those of one shape have the same factors. A tensor that equals
        another, or is the sum of others, therefore still does; other known functions are computed again.
        """
        choice = random.Random(derive_seed(self._secret, "mixed", number))
        one, other = choice.sample(self._stored, 2)
        angle = choice.uniform(0.1, 0.4) * math.pi
        first, second = (values.leaves(drawn, torch.Tensor) for drawn in (one, other))
        mixed = list(first)
        for position, kind in enumerate(self._traits):
            if kind.random:
                seed = derive_seed(self._secret, "factors", number, *first[position].shape)
                generator = torch.Generator(first[position].device).manual_seed(seed)
                turned = _mixed(first[position], second[position], angle, generator)
                mixed[position] = turned if kind is ValueTraits.PLAIN else with_zeros_of(first[position], turned)
        filled: Arguments = values.filled(one, torch.Tensor, with_relations(self._structure, first, mixed))
        return filled


def _form(drawn: Arguments) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in values.leaves(drawn, torch.Tensor)]


def _mixed(one: torch.Tensor, other: torch.Tensor, angle: float, drawn: torch.Generator) -> torch.Tensor:
    wide = torch.float64 if one.dtype is torch.float64 else torch.float32
    first, second = (tensor.as_strided(stored_shape(tensor), tensor.stride()).to(wide) for tensor in (one, other))
    turned = first * math.cos(angle) + second * math.sin(angle)
    low, high = FACTORS
    factors = torch.rand(turned.shape, generator=drawn, device=one.device, dtype=wide).mul_(high - low).add_(low)
    size = math.sqrt((low * low + low * high + high * high) / 3)
    return with_layout_of(one, turned.mul_(factors.div_(size)))
