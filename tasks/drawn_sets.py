"""Input sets as they are drawn: one by one, or many at once, and how they come into a layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from profiling.slots import Slots
from tasks.contender import Contender
from validation.inputs import ContractInputs

Arguments = list[Any]


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
    """Sets of a contract that all contenders are called by, those of these numbers: each argument's as one tensor.

    To hand each of a window's small tensors on by itself takes longer than the window. `owner` is answerable for what
    its contract asks for.
    """

    def __init__(self, inputs: ContractInputs, numbers: range, owner: Contender) -> None:
        self._stack = partial(inputs.stack, first=numbers.start, count=len(numbers))
        self._numbers = numbers
        self._owner = owner

    def __len__(self) -> int:
        return len(self._numbers)

    def fill(self, _: str, layout: Slots, first: int) -> None:
        """As of separate ones."""
        with self._owner.answerable():
            layout.fill_stacked(first, len(self), self._stack)
