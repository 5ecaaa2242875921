"""Batches of drawn input sets, separate or stacked, and how they are written into a window's layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from profiling.window.call_buffers import Slots

Arguments = list[Any]
StackOf = Callable[[int], torch.Tensor]
"""Maps an argument's index to its values in all sets, as one tensor [sets, ...]."""


class SeparateSets:
    """Separate sets: each maps a role to the arguments of that kernel."""

    def __init__(self, sets: list[dict[str, Arguments]]) -> None:
        self._sets = sets

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[dict[str, Arguments]]:
        return iter(self._sets)

    def fill(self, role: str, layout: Slots, first: int) -> None:
        """Write the sets into the layout of one kernel, starting at call number `first`."""
        layout.fill(first, [drawn[role] for drawn in self._sets])


class StackedSets:
    """`count` sets in which each argument is one tensor [sets, ...]; `stacks` maps a role to its source of stacks.

    Copying each of a window's small tensors by itself would take longer than the window.
    """

    def __init__(self, count: int, stacks: Mapping[str, StackOf]) -> None:
        self._count = count
        self._stacks = stacks

    def __len__(self) -> int:
        return self._count

    def fill(self, role: str, layout: Slots, first: int) -> None:
        """Write the sets into the layout of one kernel, starting at call number `first`."""
        layout.fill_stacked(first, len(self), self._stacks[role])
