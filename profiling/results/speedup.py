"""The speed-up of a candidate over its reference from paired windows, with its confidence interval."""

from __future__ import annotations

import math

from domain.result import Speedup
from profiling.results.estimate import TimeEstimate
from profiling.stats.statistics import measured, ratio_half_width, speedup

SHUFFLE_CORRELATION = 3.0
"""Ratio of the true error to the windows' own error, for kernels of several launches. The referee moves the memory
between launches for every window, but part of it stays in place, so that windows are not independent. Ratios of such
kernels with themselves vary that much more than their windows say (docs/measurements.md)."""


def paired_speedup(reference: TimeEstimate, candidate: TimeEstimate) -> Speedup | None:
    """The speed-up from paired windows; a pair counts if neither window was disturbed. None without a usable ratio.

    If the host may have added to the candidate's or the reference's time, the interval covers every possible share of
    it, and the ratio counts the reference's shorter time.
    """
    result, pace = _by_candidate_span(reference, candidate), reference.host_pace_ratio
    if result is None or pace == 1.0:
        return result
    is_upper_bound = result.ratio == result.ci_high
    return measured(result.ratio / (1.0 if is_upper_bound else pace), result.ci_low / pace, result.ci_high)


def _by_candidate_span(reference: TimeEstimate, candidate: TimeEstimate) -> Speedup | None:
    """The speed-up, with an interval that covers the bounds of the candidate's time."""
    added_ms, error_ms, (least_ms, most_ms) = candidate.correction
    result = _speedup(reference, candidate, added_ms, error_ms)
    if result is None or least_ms == most_ms:
        return result
    least, most = (_speedup(reference, candidate, end_ms, error_ms) for end_ms in (least_ms, most_ms))
    low, high = most.ci_low if most is not None else 0.0, least.ci_high if least is not None else math.inf
    return measured(result.ratio, min(result.ci_low, low), max(result.ci_high, high))


def _speedup(reference: TimeEstimate, candidate: TimeEstimate, added_ms: float, error_ms: float) -> Speedup | None:
    """The speed-up with `added_ms` added to the candidate's windows; `error_ms` is its standard error."""
    candidate_ms, reference_ms = candidate.net_ms, reference.net_ms
    used = candidate.used & reference.used
    unlike_ms = abs(reference.setup.launch_shift_ms - candidate.setup.launch_shift_ms) / 2
    several = candidate.setup.is_cuda and max(reference.max_launches, candidate.max_launches) > 1
    return speedup(
        reference_ms[used],
        candidate_ms[used] + added_ms,
        process_spread_ms=(
            reference.process_spread_ms(unlike_ms),
            math.hypot(candidate.process_spread_ms(unlike_ms), error_ms),
        ),
        correlation=SHUFFLE_CORRELATION if several else 1.0,
    )


def pairs_half_width(reference: TimeEstimate, candidate: TimeEstimate) -> float:
    """Half the width of the ratio's 95 % interval, relative to it; only the part that more windows can narrow."""
    used = candidate.used & reference.used
    return ratio_half_width(reference.net_ms[used], candidate.net_ms[used])


def speedup_over(candidate: Speedup, baseline: Speedup) -> Speedup | None:
    """The candidate's speed-up over the baseline, from both speed-ups over the reference; None if one is only a bound.

    The two were measured in different processes, so that their errors add in quadrature.
    """
    if any(one.ci_low <= 0 or math.isinf(one.ci_high) for one in (candidate, baseline)):
        return None
    below, above = (
        math.hypot(math.log(candidate.ratio / end), math.log(baseline.ratio / other_end))
        for end, other_end in ((candidate.ci_low, baseline.ci_high), (candidate.ci_high, baseline.ci_low))
    )
    ratio = candidate.ratio / baseline.ratio
    return measured(ratio, ratio * math.exp(-below), ratio * math.exp(above))
