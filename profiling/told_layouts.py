"""Which layouts a runner knows: to lay out the calls of a window takes it as long as a window of short kernels."""

from __future__ import annotations

from weakref import ReferenceType, ref

from profiling.slots import Slots
from sandbox.arena import Arena

PLACES = 4
"""A round's layouts and the one of single calls; of a null runner those of both sides."""


class ToldLayouts:
    """By the place where the runner keeps each, for as long as neither the layout nor its arena is another."""

    def __init__(self) -> None:
        # Not the layouts themselves: an image is as large as a window.
        self._told: list[tuple[ReferenceType[Slots], ReferenceType[Arena]] | None] = [None] * PLACES
        self._next = 0

    def place_of(self, slots: Slots, arena: Arena) -> int | None:
        """Where that one is; None where it has not been told, or others came since."""
        for place, told in enumerate(self._told):
            if told is not None and told[0]() is slots and told[1]() is arena:
                return place
        return None

    def new_place(self, slots: Slots, arena: Arena) -> int:
        """Where it is from now on, in place of the one that was told longest ago."""
        place = self._next
        self._told[place] = ref(slots), ref(arena)
        self._next = (place + 1) % PLACES
        return place
