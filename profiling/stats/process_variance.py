"""How much a kernel's windows differ between processes, which the windows of one process cannot show."""

from __future__ import annotations

import math

LAUNCH_MS = 25e-6
"""Standard deviation of a launch's time between contexts of one kind, in ms (tasks.runtime.runner_pool;
docs/measurements.md)."""
WINDOW_MS = 5e-3
"""Standard deviation of a window's start between processes, in ms (docs/measurements.md)."""


PLACEMENT = 0.01
"""Relative standard deviation of one call's time by where its inputs and outputs lie in the card's memory.

An H200 compared KernelBench's 250 problems with themselves: 50 differed by more than 0.6 % and 12 by more than 3.5 %.
Most of those were large convolutions with one call a window (docs/measurements.md).
"""


def process_spread_ms(calls: int, launches: int, unlike_ms: float, window_ms: float) -> float:
    """A window's standard deviation between processes on a GPU, in ms, for `calls` calls of `launches` launches each.

    `window_ms` is the window's time. Each call has memory of its own, so that placement averages out over calls.
    `unlike_ms` is the measured difference of this context's launch time. It has been corrected for one launch of each
    call, and the error remains for the others.
    """
    placement_ms = PLACEMENT * window_ms / math.sqrt(calls)
    return math.hypot(calls * unlike_ms * (launches - 1), calls * LAUNCH_MS * launches, WINDOW_MS, placement_ms)
