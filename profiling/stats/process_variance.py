"""What a kernel's windows differ by from one process to the next, which windows in one of them cannot show."""

from __future__ import annotations

import math

# As standard deviations: each context launches a kernel sooner or later, and of each launch this much is left between
# contexts of one kind (tasks.runtime.runner_pool); its windows begin sooner or later (docs/measurements.md).
LAUNCH_MS = 25e-6
WINDOW_MS = 5e-3


def process_apart_ms(calls: int, launches: int, unlike_ms: float) -> float:
    """A window's standard deviation in ms between processes on a GPU: of so many calls of so many launches each.

    `unlike_ms` is by how much longer a launch is known to take in this one. Of several launches a call, one has been
    put right.
    """
    return math.hypot(calls * unlike_ms * (launches - 1), calls * LAUNCH_MS * launches, WINDOW_MS)
