"""Checks a runner's own times of its calls: they may only show a distribution, and only if they fit the referee's
clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiling.stats.flags import Misfit
from profiling.stats.statistics import Sample

SLACK = 0.10
"""Maximum difference between the sum of the call times and the referee's window, as a share of the window."""
SLACK_MS = 0.02
"""Maximum such difference for a short window, in ms."""
LEAST_SHARE = 0.5
"""Minimum time of a call as a share of the mean, for a distribution to be shown."""


def matching_event_shapes(
    event_samples: Sequence[tuple[float, list[float]]], calls: int, clock_error_ms: float
) -> tuple[list[Sample], list[Misfit]]:
    """Call times relative to their window's mean, and the windows whose call times do not fit the referee's clock.

    Each sample is a window of `calls` calls: its time by the referee's clock and the runner's times of its calls, in
    ms. The clock may be off by `clock_error_ms`, which can exceed SLACK_MS.

    A distribution with a median far from the mean, or with a very short call, is left out, too: a runner that assigns
    all of a window's time to one call could make the others as short as it likes.
    """
    shapes, misfits = [], []
    for net_ms, call_ms in event_samples:
        net, total = max(net_ms, 0.0), sum(call_ms)
        complete = len(call_ms) == calls and total > 0 and min(call_ms) >= 0
        if complete and abs(total - net) <= SLACK * net + max(SLACK_MS, clock_error_ms):
            shape = np.asarray(call_ms) / np.mean(call_ms)
            if abs(float(np.median(shape)) - 1) <= SLACK and float(shape.min()) >= LEAST_SHARE:
                shapes.append(shape)
        else:
            misfits.append(Misfit(net_ms, total))
    return shapes, misfits
