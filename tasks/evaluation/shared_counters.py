"""What pool children tell their worker's main process: a number each, in memory that both have.

Made before the first child is forked, so no message, file or connection is needed, and a child that dies leaves
nothing behind: the one that takes its place begins with its own.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

from billiard import current_process

PLACES = 64
"""MAX_WORKERS is at most so many."""

_UNKNOWN = -1


def _shared() -> memoryview:
    places = memoryview(mmap.mmap(-1, PLACES * 4)).cast("i")
    for place in range(PLACES):
        places[place] = _UNKNOWN
    return places


@dataclass(frozen=True)
class ChildBoard:
    """How many standby runners each pool child has ready; None where it has not said."""

    _places: memoryview = field(default_factory=_shared)

    def write(self, standbys: int | None) -> None:
        """In a pool child."""
        index = getattr(current_process(), "index", None)
        if index is not None and index < PLACES:
            self._places[index] = _UNKNOWN if standbys is None else standbys

    def standbys(self) -> int | None:
        """In the main process: of all children together; None where none of them has any to speak of."""
        known = [count for count in self._places if count != _UNKNOWN]
        return sum(known) if known else None


board = ChildBoard()
