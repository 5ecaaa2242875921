"""Figures of a sample of times, and of the ratio of paired times."""

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
"""What a 95 % interval leaves out on each side."""
DEVIATIONS = -NormalDist().inv_cdf(TAIL)
MIN_PAIRS = 3
LOOKS = 2.0
"""Windows go on until the interval is narrow enough: samples that look narrow by luck end sooner. So many more
standard errors, by the number of values, make up for it (tests/profiling/results/test_told_apart.py)."""
OUTLIER = 8.0
OUTLIER_FLOOR = 0.02
OUTLIERS_AT_MOST = 0.25
"""A larger share is how the kernel is, and no disturbance."""


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
    apart_ms: tuple[float, float] = (0.0, 0.0),
    likeness: float = 1.0,
) -> Speedup | None:
    """Reference over candidate from paired windows, with a 95 % interval: the ratio's bootstrap standard error times
    what a sample of that size needs (`reach`), on the logarithm.

    The ratio of the mean times; pairs are drawn together, so that drift which both saw cancels. The interval is widened
    by what the same kernel differs by from one process to the next (`apart_ms`, standard deviations in ms a window, of
    reference and candidate), which no number of windows in one pair of processes averages out, and by so many times as
    values that are alike for a reason of their own (`likeness`) say less than as many independent ones. A candidate's
    time that is not clear of zero gives a lower bound alone, `ci_high` being infinite; a reference's an upper one,
    `ci_low` being 0, where that is below 1. None where a ratio would mean nothing. Of fewer than MIN_PAIRS pairs
    nothing is known but the ratio.
    """
    reference, candidate = np.asarray(reference_ms), np.asarray(candidate_ms)
    if reference.size == 0:
        return None
    above, below = float(reference.mean()), float(candidate.mean())
    if reference.size < MIN_PAIRS:
        return Speedup(above / below, 0.0, math.inf, "not_distinguishable") if min(above, below) > 0 else None
    above_margin, below_margin = (
        math.hypot(likeness * reach(sample.size) * standard_error(sample), DEVIATIONS * apart)
        for sample, apart in zip((reference, candidate), apart_ms, strict=True)
    )
    if not above > above_margin:
        return _at_most(max(above, 0.0) + above_margin, below - below_margin)
    if not below > below_margin:
        return _at_least(above - above_margin, max(below, 0.0) + below_margin)
    ratio = above / below
    apart = math.hypot(apart_ms[0] / above, apart_ms[1] / below)
    error = likeness * _bootstrap_error(reference, candidate)
    half = math.hypot(reach(reference.size) * error, DEVIATIONS * apart)
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return measured(ratio, low, high)


def measured(ratio: float, low: float, high: float) -> Speedup:
    """The speed-up of that ratio, with what its interval says."""
    verdict = "faster" if low > 1.0 else "slower" if high < 1.0 else "not_distinguishable"
    return Speedup(ratio=ratio, ci_low=low, ci_high=high, verdict=verdict)


def half_width(sample: Sample) -> float:
    """Half the width of the mean's 95 % interval (`reach`), relative to it; infinite where nothing is known."""
    if sample.size < 2 or not sample.mean() > 0:
        return math.inf
    return reach(sample.size) * standard_error(sample) / float(sample.mean())


def ratio_half_width(reference: Sample, candidate: Sample) -> float:
    """The same of the ratio of two means of paired samples, to first order."""
    if reference.size < 2 or not (reference.mean() > 0 and candidate.mean() > 0):
        return math.inf
    apart = reference / reference.mean() - candidate / candidate.mean()
    return reach(apart.size) * standard_error(apart)


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: Cornish-Fisher expansion about the normal one (Abramowitz, Stegun 26.7.5).

    Within 2 % of the tables from three degrees of freedom up; of one and two it has a closed form.
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
    """How many standard errors a 95 % interval goes each way: Student's t, and more for LOOKS."""
    return student_t(size - 1) * (1 + LOOKS / size)


def _bootstrap_error(reference: Sample, candidate: Sample) -> float:
    """The standard error of the logarithm of the ratio of means, pairs drawn together (Efron, 1979)."""
    size = reference.size
    picks = np.random.default_rng(0).integers(0, size, (BOOTSTRAP_DRAWS, size))
    above, below = reference[picks].mean(axis=1), candidate[picks].mean(axis=1)
    clear = (above > 0) & (below > 0)
    # What is drawn from a few values varies less than what they are from (Hesterberg, 2015, section 3.2).
    return float(np.log(above[clear] / below[clear]).std()) * math.sqrt(size / (size - 1))


def _at_least(reference_low_ms: float, candidate_high_ms: float) -> Speedup | None:
    """A candidate too short to be measured: the ratio has a lower bound and no upper one."""
    if candidate_high_ms <= 0:
        return None
    low = reference_low_ms / candidate_high_ms
    return Speedup(ratio=low, ci_low=low, ci_high=math.inf, verdict="faster" if low > 1.0 else "not_distinguishable")


def _at_most(reference_high_ms: float, candidate_low_ms: float) -> Speedup | None:
    """A reference too short to be measured: beside a candidate that is longer for sure the ratio has an upper bound."""
    if not candidate_low_ms > reference_high_ms:
        return None
    high = reference_high_ms / candidate_low_ms
    return Speedup(ratio=high, ci_low=0.0, ci_high=high, verdict="slower")


def resolved(times_ms: Sample) -> tuple[float, bool]:
    """The mean, and False; or, where it is not clear of zero, an upper bound for it and True.

    Clear is a 95 % interval that does not reach it (`half_width` under 1). The bound is two standard errors above the
    mean, so that a kernel gains nothing by being too short.
    """
    mean, error = float(times_ms.mean()), standard_error(times_ms)
    if mean > (reach(times_ms.size) if times_ms.size > 1 else 0.0) * error:
        return mean, False
    return max(mean, 0.0) + 2 * error, True


def standard_error(sample: Sample) -> float:
    """Of the mean; 0.0 for a single value."""
    return float(sample.std(ddof=1)) / math.sqrt(sample.size) if sample.size > 1 else 0.0


def error_below(sample: Sample) -> float:
    """The median's standard error, by what lies below the median alone: that of a normal sample."""
    middle = np.median(sample)
    deviation = float(np.sqrt(np.mean((sample[sample <= middle] - middle) ** 2)))
    return math.sqrt(math.pi / 2) * deviation / math.sqrt(sample.size)


def undisturbed(windows_ms: Sample) -> NDArray[np.bool_]:
    """Which windows nothing from outside broke into: within OUTLIER robust standard deviations, or OUTLIER_FLOOR.

    Both sides alike, so that leaving out does not favour fast or slow. Under five windows all are kept, and so they are
    where more than OUTLIERS_AT_MOST of them lie apart: a kernel that is slow every third time is charged for it.
    """
    everything: NDArray[np.bool_] = np.ones(windows_ms.size, dtype=np.bool_)
    if windows_ms.size < 5:
        return everything
    middle = np.median(windows_ms)
    deviation = np.abs(windows_ms - middle)
    kept: NDArray[np.bool_] = deviation <= max(OUTLIER * 1.4826 * np.median(deviation), OUTLIER_FLOOR * middle)
    return kept if (~kept).mean() <= OUTLIERS_AT_MOST else everything
