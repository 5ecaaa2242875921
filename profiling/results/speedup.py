"""Two contenders' windows, shot side by side: how they compare, and how narrowly that is known."""

from __future__ import annotations

import math

from domain.result import Speedup
from profiling.results.samples import TimeRecord
from profiling.stats.statistics import measured, ratio_half_width, speedup, undisturbed

PLACES_ALIKE = 3.0
"""Where calls of several launches keep data for each other is drawn anew for every window, but part of it stays where
it was: ratios of such kernels with themselves vary that much more than their windows say (docs/measurements.md)."""


def paired_speedup(reference: TimeRecord, candidate: TimeRecord) -> Speedup | None:
    """From the windows that were shot side by side; a pair counts where nothing broke into either.

    Where the host may have had part in the candidate's time, the interval holds all that it may be.
    """
    added_ms, error_ms, (least_ms, most_ms) = candidate.correction
    found = _speedup(reference, candidate, added_ms, error_ms)
    if found is None or least_ms == most_ms:
        return found
    least, most = (_speedup(reference, candidate, end_ms, error_ms) for end_ms in (least_ms, most_ms))
    low, high = most.ci_low if most is not None else 0.0, least.ci_high if least is not None else math.inf
    return measured(found.ratio, min(found.ci_low, low), max(found.ci_high, high))


def _speedup(reference: TimeRecord, candidate: TimeRecord, added_ms: float, error_ms: float) -> Speedup | None:
    """With that added to the candidate's windows, and the error of it."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    unlike_ms = abs(reference.launch_shift_ms - candidate.launch_shift_ms) / 2
    several = candidate.is_cuda and max(reference.launches_at_most, candidate.launches_at_most) > 1
    return speedup(
        theirs[kept],
        ours[kept] + added_ms,
        apart_ms=(
            reference.apart_ms(unlike_ms),
            math.hypot(candidate.apart_ms(unlike_ms), error_ms),
        ),
        likeness=PLACES_ALIKE if several else 1.0,
    )


def pairs_half_width(reference: TimeRecord, candidate: TimeRecord) -> float:
    """Half the width of the ratio's 95 % interval, relative to it, as far as more windows can narrow it."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    return ratio_half_width(theirs[kept], ours[kept])
