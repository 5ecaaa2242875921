"""Statistics of a sample of times, and of the ratio of paired times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from domain.result import RuntimeStats, Speedup

Sample = NDArray[np.float64]

BOOTSTRAP_DRAWS = 4000
TAIL = 0.025
"""Probability outside of a 95 % interval, on each side."""
DEVIATIONS = -NormalDist().inv_cdf(TAIL)
MIN_PAIRS = 3
LOOKS = 2.0
"""Extra standard errors of an interval, divided by the sample's size. Timing stops once the interval is narrow enough,
so that samples which are narrow by luck stop earlier (tests/profiling/results/test_told_apart.py)."""
OUTLIER = 8.0
OUTLIER_FLOOR = 0.02
MAX_OUTLIERS = 0.25
"""Maximum share of outliers that count as disturbances; a larger one is the kernel's own behaviour."""
MAX_OUTLIERS_MOVED = 0.125
"""The same where memory moves before each window: in one place a call may take 30 % longer (docs/timing.md)."""


def runtime_stats(samples_ms: Sequence[float] | Sample) -> RuntimeStats:
    """Mean, sample standard deviation, extremes and percentiles (linear interpolation), unrounded."""
    sample = np.asarray(samples_ms, dtype=np.float64)
    return RuntimeStats(
        mean=float(sample.mean()),
        std=float(sample.std(ddof=1)) if sample.size > 1 else 0.0,
        min=float(sample.min()),
        max=float(sample.max()),
        median=float(np.median(sample)),
        percentile_95=float(np.percentile(sample, 95)),
        percentile_99=float(np.percentile(sample, 99)),
    )


def speedup(
    reference_ms: Sequence[float] | Sample,
    candidate_ms: Sequence[float] | Sample,
    *,
    process_spread_ms: tuple[float, float] = (0.0, 0.0),
    correlation: float = 1.0,
) -> Speedup | None:
    """The ratio of the mean reference time to the mean candidate time of paired windows, with a 95 % interval.

    The interval is computed on the logarithm of the ratio: its bootstrap standard error times `reach` of the sample's
    size. The bootstrap draws pairs, so that drift which both windows of a pair saw cancels. Two things widen it:

    - `process_spread_ms`: standard deviations of a window between processes, of reference and candidate. More windows
      in the same two processes cannot average that out.
    - `correlation`: the ratio of the true error to that of as many independent windows.

    If the candidate's time is not significantly above zero, the result is a lower bound with an infinite `ci_high`. If
    the reference's is not, it is an upper bound with `ci_low` 0, provided that bound is below 1. Fewer than MIN_PAIRS
    pairs give the ratio without an interval. None if a ratio would mean nothing.
    """
    reference, candidate = np.asarray(reference_ms), np.asarray(candidate_ms)
    if reference.size == 0:
        return None
    above, below = float(reference.mean()), float(candidate.mean())
    if reference.size < MIN_PAIRS:
        return Speedup(above / below, 0.0, math.inf, "not_distinguishable") if min(above, below) > 0 else None
    above_margin, below_margin = (
        math.hypot(correlation * reach(sample.size) * standard_error(sample), DEVIATIONS * spread_ms)
        for sample, spread_ms in zip((reference, candidate), process_spread_ms, strict=True)
    )
    if not above > above_margin:
        return _upper_bound(max(above, 0.0) + above_margin, below - below_margin)
    if not below > below_margin:
        return _lower_bound(above - above_margin, max(below, 0.0) + below_margin)
    ratio = above / below
    spread = math.hypot(process_spread_ms[0] / above, process_spread_ms[1] / below)
    error = correlation * _bootstrap_error(reference, candidate)
    half = math.hypot(reach(reference.size) * error, DEVIATIONS * spread)
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return measured(ratio, low, high)


def measured(ratio: float, low: float, high: float) -> Speedup:
    """The speed-up of that ratio, with the verdict that its interval implies."""
    verdict = "faster" if low > 1.0 else "slower" if high < 1.0 else "not_distinguishable"
    return Speedup(ratio=ratio, ci_low=low, ci_high=high, verdict=verdict)


def half_width(sample: Sample) -> float:
    """Half the width of the mean's 95 % interval (`reach`), relative to it; infinite for fewer than two values."""
    if sample.size < 2 or not sample.mean() > 0:
        return math.inf
    return reach(sample.size) * standard_error(sample) / float(sample.mean())


def ratio_half_width(reference: Sample, candidate: Sample) -> float:
    """Half the width of the 95 % interval of a ratio of two paired means, relative to it, to first order."""
    if reference.size < 2 or not (reference.mean() > 0 and candidate.mean() > 0):
        return math.inf
    differences = reference / reference.mean() - candidate / candidate.mean()
    return reach(differences.size) * standard_error(differences)


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: Cornish-Fisher expansion about the normal one (Abramowitz, Stegun 26.7.5).

    It is within 2 % of the tables from three degrees of freedom up; for one and two it uses the closed form.
    """
    middle = 1 - 2 * TAIL
    if freedom == 1:
        return math.tan(math.pi * middle / 2)
    if freedom == 2:
        return middle * math.sqrt(2 / (1 - middle**2))
    z, n = DEVIATIONS, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def reach(size: int) -> float:
    """Half a 95 % interval's width in standard errors: Student's t, enlarged for repeated looks (LOOKS)."""
    return student_t(size - 1) * (1 + LOOKS / size)


def _bootstrap_error(reference: Sample, candidate: Sample) -> float:
    """The standard error of the logarithm of the ratio of means, pairs drawn together (Efron, 1979)."""
    size = reference.size
    picks = np.random.default_rng(0).integers(0, size, (BOOTSTRAP_DRAWS, size))
    above, below = reference[picks].mean(axis=1), candidate[picks].mean(axis=1)
    clear = (above > 0) & (below > 0)
    # Draws from a few values vary less than the population that the values come from (Hesterberg, 2015, section 3.2).
    return float(np.log(above[clear] / below[clear]).std()) * math.sqrt(size / (size - 1))


def _lower_bound(reference_low_ms: float, candidate_high_ms: float) -> Speedup | None:
    """The speed-up for a candidate that is too short to measure: the ratio has only a lower bound."""
    if candidate_high_ms <= 0:
        return None
    low = reference_low_ms / candidate_high_ms
    return Speedup(ratio=low, ci_low=low, ci_high=math.inf, verdict="faster" if low > 1.0 else "not_distinguishable")


def _upper_bound(reference_high_ms: float, candidate_low_ms: float) -> Speedup | None:
    """The speed-up for a reference that is too short to measure; None unless the candidate is certainly longer."""
    if not candidate_low_ms > reference_high_ms:
        return None
    high = reference_high_ms / candidate_low_ms
    return Speedup(ratio=high, ci_low=0.0, ci_high=high, verdict="slower")


def resolved(times_ms: Sample) -> tuple[float, bool]:
    """The mean and False; or an upper bound and True, if the mean's 95 % interval reaches zero.

    The bound is two standard errors above the mean, so that a kernel gains nothing by being too short to measure.
    """
    mean, error = float(times_ms.mean()), standard_error(times_ms)
    if mean > (reach(times_ms.size) if times_ms.size > 1 else 0.0) * error:
        return mean, False
    return max(mean, 0.0) + 2 * error, True


def standard_error(sample: Sample) -> float:
    """The standard error of the mean; 0.0 for a single value."""
    return float(sample.std(ddof=1)) / math.sqrt(sample.size) if sample.size > 1 else 0.0


def error_below(sample: Sample) -> float:
    """The median's standard error, from the values below the median alone, as for a normal sample."""
    middle = np.median(sample)
    deviation = float(np.sqrt(np.mean((sample[sample <= middle] - middle) ** 2)))
    return math.sqrt(math.pi / 2) * deviation / math.sqrt(sample.size)


def undisturbed(windows_ms: Sample, max_outliers: float = MAX_OUTLIERS) -> NDArray[np.bool_]:
    """A mask of the windows that nothing disturbed: within OUTLIER robust standard deviations, or OUTLIER_FLOOR.

    Short and long outliers count alike, so that their exclusion favours neither fast nor slow kernels. All windows
    count if there are fewer than five, or if several are outliers and more than the share `max_outliers`: a kernel that
    is slow every third time has to show that.
    """
    everything: NDArray[np.bool_] = np.ones(windows_ms.size, dtype=np.bool_)
    if windows_ms.size < 5:
        return everything
    middle = np.median(windows_ms)
    deviation = np.abs(windows_ms - middle)
    inside: NDArray[np.bool_] = deviation <= max(OUTLIER * 1.4826 * np.median(deviation), OUTLIER_FLOOR * middle)
    return inside if (~inside).sum() <= max(1.0, max_outliers * windows_ms.size) else everything
