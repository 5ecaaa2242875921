"""A runner's own times of its calls: a distribution to show where they fit the referee's clock, and never more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiling.stats.flags import Misfit
from profiling.stats.statistics import Sample

SLACK = 0.10
SLACK_MS = 0.02
"""By how much more they may be off the referee's window."""
LEAST_SHARE = 0.5
"""Of the mean, what a call takes at least where they are to be shown."""


def fitting_marks(
    marked: Sequence[tuple[float, list[float]]], calls: int, unsure_ms: float
) -> tuple[list[Sample], list[Misfit]]:
    """Of windows of so many calls, each the clock's ms and its calls': call times relative to their window's mean, and
    the windows that they do not fit. The clock is `unsure_ms` off, which may be more than SLACK_MS.

    Nor is a shape believed whose middle is far from the mean, or its least: one call that is said to have taken all
    of the window's time would make the others as short as its runner likes.
    """
    shapes, misfits = [], []
    for net_ms, call_ms in marked:
        net, total = max(net_ms, 0.0), sum(call_ms)
        whole = len(call_ms) == calls and total > 0 and min(call_ms) >= 0
        if whole and abs(total - net) <= SLACK * net + max(SLACK_MS, unsure_ms):
            shape = np.asarray(call_ms) / np.mean(call_ms)
            if abs(float(np.median(shape)) - 1) <= SLACK and float(shape.min()) >= LEAST_SHARE:
                shapes.append(shape)
        else:
            misfits.append(Misfit(net_ms, total))
    return shapes, misfits
