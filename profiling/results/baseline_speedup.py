"""The speed-up over a baseline that was timed beside the same reference in processes of its own."""

from __future__ import annotations

import math

from domain.result import Speedup
from profiling.stats.statistics import measured


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
