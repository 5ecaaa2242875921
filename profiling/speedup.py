"""Two contenders' windows, shot side by side: how they compare, and how narrowly that is known."""

from __future__ import annotations

import math

from domain.result import Speedup
from profiling.record import TimeRecord
from profiling.statistics import ratio_half_width, speedup, undisturbed

# What one kernel's time differs by between two processes, as a standard deviation: each context launches a kernel
# sooner or later, and of each launch this much is left between contexts of one kind (tasks.standbys); its windows begin
# sooner or later (docs/measurements.md). Windows in one pair of processes do not average it out.
LAUNCH_MS = 30e-6
WINDOW_MS = 5e-3


def paired_speedup(reference: TimeRecord, candidate: TimeRecord) -> Speedup | None:
    """From the windows that were shot side by side; a pair counts where nothing broke into either."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    ours, theirs = ours[kept] * candidate.correction, theirs[kept] * reference.correction
    return speedup(theirs, ours, apart_ms=(_apart_ms(reference), _apart_ms(candidate)))


def _apart_ms(record: TimeRecord) -> float:
    """What its windows may differ by in another process."""
    if not record.is_cuda:
        return 0.0
    return math.hypot(LAUNCH_MS * record.launches_at_most * record.calls, WINDOW_MS) * record.correction


def pairs_half_width(reference: TimeRecord, candidate: TimeRecord) -> float:
    """Half the width of the ratio's 95 % interval, relative to it, as far as more windows can narrow it."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    return ratio_half_width(theirs[kept], ours[kept])
