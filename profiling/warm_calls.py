"""Calls by themselves that find in the cache what the call before them has left there: weights above all.

In a window of many calls only the first reads its weights from memory; by itself each does. What that takes longer is
no work that calls share (docs/adr/0042).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from profiling.longer_windows import SETTLED

WEIGHT_BYTES_PER_MS = 4e8
"""Weights are read from memory this fast at least: a product of 1024² in float32, of few blocks, reads 4 MiB of them at
0.55 TB/s (docs/measurements.md)."""
SLOWED_MS = -0.005
"""No reference takes so much longer with a warm cache than without: somebody keeps the device busy then."""


@dataclass
class WarmCalls:
    """The clocks of such windows, in ms, and how many bytes of `weights` the task has."""

    weights: int = 0
    elapsed_ms: list[float] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether there are weights to find, and too few windows that may have found them."""
        return self.weights > 0 and len(self.elapsed_ms) < SETTLED

    def shorter_ms(self, cold_ms: Sequence[float]) -> float | None:
        """Than windows that begin with an empty cache; None where too few are known of one or the other."""
        if len(self.elapsed_ms) < SETTLED or not cold_ms:
            return None
        return statistics.median(cold_ms) - statistics.median(self.elapsed_ms)


def colder_ms(warm: WarmCalls, cold_ms: Sequence[float], beside: WarmCalls, beside_cold_ms: Sequence[float]) -> float:
    """What a call by itself takes longer for an empty cache than that of the reference `beside` it does; 0 if unknown.

    No more than it takes to read the weights from memory. Who is slow on purpose in his calls by themselves has that in
    their own time too.
    """
    own, reference = warm.shorter_ms(cold_ms), beside.shorter_ms(beside_cold_ms)
    if own is None or reference is None or reference < SLOWED_MS:
        return 0.0
    return min(max(own - max(reference, 0.0), 0.0), warm.weights / WEIGHT_BYTES_PER_MS)
