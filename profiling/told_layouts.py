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
        # Not the layouts themselves: an image is as large as a window. In the order in which they were last asked for.
        self._told: dict[int, tuple[ReferenceType[Slots], ReferenceType[Arena]]] = {}

    def is_current(self, slots: Slots, arena: Arena) -> bool:
        """Whether that one was asked for last, so that the runner's next window is over it."""
        last = next(reversed(self._told.values()), None)
        return last is not None and last[0]() is slots and last[1]() is arena

    def place_of(self, slots: Slots, arena: Arena) -> int | None:
        """Where that one is; None where it has not been told, or others have taken its place."""
        for place, (told, lay_in) in self._told.items():
            if told() is slots and lay_in() is arena:
                self._told[place] = self._told.pop(place)
                return place
        return None

    def new_place(self, slots: Slots, arena: Arena) -> int:
        """Where it is from now on: in place of one that is gone, or else of the one not asked for longest."""
        gone = (place for place, (told, lay_in) in self._told.items() if told() is None or lay_in() is None)
        place = next(gone, len(self._told) if len(self._told) < PLACES else next(iter(self._told)))
        self._told.pop(place, None)
        self._told[place] = ref(slots), ref(arena)
        return place
