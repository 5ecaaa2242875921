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
    spread = 0.0
    if reference.is_cuda and ours.mean() > 0 and theirs.mean() > 0:
        spread = math.hypot(*(_between_processes(float(net.mean()), candidate.calls) for net in (ours, theirs)))
    ours, theirs = ours * candidate.correction, theirs * reference.correction
    return speedup(theirs[kept], ours[kept], between_processes=spread)


def pairs_half_width(reference: TimeRecord, candidate: TimeRecord) -> float:
    """Half the width of the ratio's 95 % interval, relative to it, as far as more windows can narrow it."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    return ratio_half_width(theirs[kept], ours[kept])


def _between_processes(window_ms: float, calls: int) -> float:
    """Of one side, relative to its time."""
    return math.hypot(LAUNCH_MS * calls, WINDOW_MS) / window_ms
