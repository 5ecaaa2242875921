"""Two contenders' windows, shot side by side: how they compare, and how narrowly that is known."""

from __future__ import annotations

import math

from domain.result import Speedup
from profiling.record import TimeRecord
from profiling.statistics import ratio_half_width, speedup, undisturbed

# What one kernel's time differs by between two processes, as a standard deviation: each context launches a kernel
# sooner or later, of which this much is left after what was measured of it is taken off, and its windows begin sooner
# or later (docs/measurements.md). Windows in one pair of processes do not average it out.
LAUNCH_MS = 40e-6
WINDOW_MS = 5e-3


def paired_speedup(reference: TimeRecord, candidate: TimeRecord) -> Speedup | None:
    """From the windows that were shot side by side; a pair counts where nothing broke into either."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    apart = math.hypot(LAUNCH_MS * candidate.calls, WINDOW_MS) if candidate.is_cuda else 0.0
    ours, theirs = ours[kept] * candidate.correction, theirs[kept] * reference.correction
    return speedup(theirs, ours, apart_ms=(apart * reference.correction, apart * candidate.correction))


def pairs_half_width(reference: TimeRecord, candidate: TimeRecord) -> float:
    """Half the width of the ratio's 95 % interval, relative to it, as far as more windows can narrow it."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    return ratio_half_width(theirs[kept], ours[kept])
