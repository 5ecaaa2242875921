"""Input sets as they are drawn: one by one, or many at once, and how they come into a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from profiling.window.call_buffers import Slots

Arguments = list[Any]
StackOf = Callable[[int], torch.Tensor]
"""Of the argument of that index, in all sets."""


class SeparateSets:
    """Each set by itself: for each contender, by role, what it is called with."""

    def __init__(self, sets: list[dict[str, Arguments]]) -> None:
        self._sets = sets

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[dict[str, Arguments]]:
        return iter(self._sets)

    def fill(self, role: str, layout: Slots, first: int) -> None:
        """Writes them into that contender's layout, from the call of that number on."""
        layout.fill(first, [drawn[role] for drawn in self._sets])


class StackedSets:
    """So many sets, of which each argument comes as one tensor, [sets, ...]; what gives it, by contender, by role.

    To hand each of a window's small tensors on by itself takes longer than the window.
    """

    def __init__(self, count: int, stacks: Mapping[str, StackOf]) -> None:
        self._count = count
        self._stacks = stacks

    def __len__(self) -> int:
        return self._count

    def fill(self, role: str, layout: Slots, first: int) -> None:
        """As of separate ones."""
        layout.fill_stacked(first, len(self), self._stacks[role])
