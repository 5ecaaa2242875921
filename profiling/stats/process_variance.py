"""How much a kernel's windows differ between processes, which the windows of one process cannot show."""

from __future__ import annotations

import math

LAUNCH_MS = 25e-6
"""Standard deviation of a launch's time between contexts of one kind, in ms (tasks.runtime.runner_pool;
docs/measurements.md)."""
WINDOW_MS = 5e-3
"""Standard deviation of a window's start between processes, in ms (docs/measurements.md)."""


def process_spread_ms(calls: int, launches: int, unlike_ms: float) -> float:
    """A window's standard deviation between processes on a GPU, in ms, for `calls` calls of `launches` launches each.

    `unlike_ms` is the measured difference of this context's launch time. It has been corrected for one launch of each
    call, and the error remains for the others.
    """
    return math.hypot(calls * unlike_ms * (launches - 1), calls * LAUNCH_MS * launches, WINDOW_MS)
