"""What a window costs when nothing is computed in it, measured with a trusted null runner."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from profiling.slots import Slots
from profiling.window import Range

NULL_WINDOWS = 5


@dataclass(frozen=True)
class Overhead:
    """Median of null windows in ms, and how far they spread: the floor of what a window can resolve."""

    median_ms: float
    spread_ms: float


class Calibration:
    """Null windows of a given layout, taken once each. Nothing that a submission can influence goes in here."""

    def __init__(self, null_range: Range) -> None:
        self._range = null_range
        self._known: dict[tuple[int, int, int, bool, bool], Overhead] = {}

    def overhead(self, slots: Slots, *, gated: bool) -> Overhead:
        """The overhead of windows with that many calls and output bytes."""
        key = (slots.calls, slots.size, slots.output_bytes, slots.returned, gated)
        if key not in self._known:
            self._range.window(slots, gated=gated)  # the first one allocates
            taken = [self._range.window(slots, gated=gated).elapsed_ms for _ in range(NULL_WINDOWS)]
            self._known[key] = Overhead(statistics.median(taken), max(taken) - min(taken))
        return self._known[key]
