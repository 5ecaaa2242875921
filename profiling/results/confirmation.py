"""Whether a second, independent measurement confirms a speed-up, and what both support together."""

from __future__ import annotations

import math

from domain.request import DEFAULT_TARGET_PRECISION
from domain.result import Report, Speedup, Status
from domain.speed.confirmation import Confirmation, Finding, FirstResult
from profiling.stats.statistics import measured

TOLERANCE = DEFAULT_TARGET_PRECISION
"""Relative difference of two speed-ups that counts as none: the half width at which a job's timing stops by default."""
NORMAL_95 = 1.96
"""Half a 95 % interval in standard deviations."""


def confirmation(first: FirstResult, second: Report) -> Confirmation:
    """The confirmation of `first` by a job that judged the same sources again."""
    environment = second.environment
    here = (environment.get("host"), environment.get("gpu_id"))
    return Confirmation(
        first,
        verdict_stands=second.outcome.status is Status.PASSED,
        finding=compare_speedups(first.speedup, second.speedup),
        together=combined(first.speedup, second.speedup) if second.speedup is not None else None,
        another_device=None if here[1] is None else here != (first.host, first.gpu_index),
    )


def compare_speedups(first: Speedup, second: Speedup | None) -> Finding:
    """The second measurement's finding about the first.

    They agree if their logarithms differ by no more than the 95 % interval of a difference of two independent
    measurements, and TOLERANCE.
    """
    if second is None:
        return Finding.NOT_MEASURED
    if first.verdict == "faster" != second.verdict:
        return Finding.VANISHED
    margins = _margin(first), _margin(second)
    if math.inf in margins:
        return Finding.ONLY_BOUNDS
    gain = math.log(second.ratio / first.ratio)
    if abs(gain) <= math.hypot(*margins) + TOLERANCE:
        return Finding.CONFIRMED
    return Finding.LARGER if gain > 0 else Finding.SMALLER


def combined(first: Speedup, second: Speedup) -> Speedup | None:
    """The mean of both logarithms, weighted by their precision, with a 95 % interval; None if one is only a bound.

    Two that differ by more than their intervals explain have an interval wider by the ratio of the difference to its
    expected size. That is the Particle Data Group's scale factor (Review of Particle Physics, section 5.2.2).
    """
    margins = _margin(first), _margin(second)
    if math.inf in margins:
        return None
    weights = [1 / max(margin, 1e-9) ** 2 for margin in margins]
    logs = [math.log(first.ratio), math.log(second.ratio)]
    mean = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / sum(weights)
    chi = NORMAL_95 * abs(logs[0] - logs[1]) / max(math.hypot(*margins), 1e-9)
    margin = max(chi, 1.0) / math.sqrt(sum(weights))
    return measured(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin))


def _margin(speedup: Speedup) -> float:
    """Half the width of the interval of the logarithm; infinite for a bound."""
    if speedup.ci_low <= 0 or math.isinf(speedup.ci_high):
        return math.inf
    return math.log(speedup.ci_high / speedup.ci_low) / 2
