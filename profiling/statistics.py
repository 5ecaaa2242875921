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
OUTLIER = 5.0
OUTLIER_FLOOR = 0.02


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
    reference_ms: Sequence[float] | Sample, candidate_ms: Sequence[float] | Sample, *, between_processes: float = 0.0
) -> Speedup | None:
    """Reference over candidate from paired windows, with a 95 % percentile-bootstrap interval (Efron, 1979).

    The ratio of the mean times; pairs are drawn together, so that drift which both saw cancels. With few pairs the
    percentiles lie further out (expanded percentiles: Hesterberg, 2015, section 4.2). The interval is widened by what
    the same kernel differs by from one process to the next (`between_processes`, the ratio's relative standard
    deviation), which no number of windows in one pair of processes averages out. None where the reference's time is
    not clear of zero: a ratio would mean nothing. A candidate's that is not gives a lower bound alone, `high` being
    infinite. Fewer than MIN_PAIRS pairs give no verdict.
    """
    reference, candidate = np.asarray(reference_ms), np.asarray(candidate_ms)
    if reference.size == 0:
        return None
    picks = np.random.default_rng(0).integers(0, reference.size, (BOOTSTRAP_DRAWS, reference.size))
    above, below = reference[picks].mean(axis=1), candidate[picks].mean(axis=1)
    tail = _tail(reference.size)
    if not _clear(reference, above, tail):
        return None
    if not _clear(candidate, below, tail):
        return _at_least(float(np.quantile(above, tail)), resolved(candidate)[0], reference.size)
    clear = (above > 0) & (below > 0)
    above, below = above[clear], below[clear]
    ratio = float(reference.mean() / candidate.mean())
    inner = np.quantile(above / below, [tail, 1 - tail])
    low, high = (
        ratio * math.exp(sign * math.hypot(math.log(bound / ratio), DEVIATIONS * between_processes))
        for sign, bound in zip((-1, 1), inner, strict=True)
    )
    verdict = "faster" if low > 1.0 else "slower" if high < 1.0 else "not_distinguishable"
    if reference.size < MIN_PAIRS:
        verdict = "not_distinguishable"
    return Speedup(ratio=ratio, low=low, high=high, verdict=verdict)


def half_width(sample: Sample) -> float:
    """Half the width of the mean's 95 % interval (Student's t), relative to it; infinite where nothing is known."""
    if sample.size < 2 or not sample.mean() > 0:
        return math.inf
    return student_t(sample.size - 1) * standard_error(sample) / float(sample.mean())


def ratio_half_width(reference: Sample, candidate: Sample) -> float:
    """The same of the ratio of two means of paired samples, to first order."""
    if reference.size < 2 or not (reference.mean() > 0 and candidate.mean() > 0):
        return math.inf
    apart = reference / reference.mean() - candidate / candidate.mean()
    return student_t(apart.size - 1) * standard_error(apart)


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: Cornish-Fisher expansion about the normal one (Abramowitz, Stegun 26.7.5).

    Within 2 % of the tables from three degrees of freedom up.
    """
    z, n = DEVIATIONS, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def _tail(pairs: int) -> float:
    """What a percentile interval of so few pairs leaves out on each side, to cover what it says."""
    if pairs < 2:
        return TAIL
    return NormalDist().cdf(-math.sqrt(pairs / (pairs - 1)) * student_t(pairs - 1))


def _clear(sample: Sample, means: Sample, tail: float) -> bool:
    """Whether a mean is above zero beyond what resampling leaves open."""
    return bool(sample.mean() > 0 and (means > 0).mean() >= 1 - tail)


def _at_least(reference_low_ms: float, candidate_high_ms: float, pairs: int) -> Speedup | None:
    """A candidate too short to be measured: the ratio has a lower bound and no upper one."""
    if candidate_high_ms <= 0:
        return None
    low = reference_low_ms / candidate_high_ms
    verdict = "faster" if low > 1.0 and pairs >= MIN_PAIRS else "not_distinguishable"
    return Speedup(ratio=low, low=low, high=math.inf, verdict=verdict)


def resolved(times_ms: Sample) -> tuple[float, bool]:
    """The mean, and False; or, where it is not clear of zero, an upper bound for it and True.

    Clear is two standard errors; the bound is as far above the mean, so that a kernel gains nothing by being too short.
    """
    mean, error = float(times_ms.mean()), standard_error(times_ms)
    if mean > 2 * error:
        return mean, False
    return max(mean, 0.0) + 2 * error, True


def standard_error(sample: Sample) -> float:
    """Of the mean; 0.0 for a single value."""
    return float(sample.std(ddof=1)) / math.sqrt(sample.size) if sample.size > 1 else 0.0


def undisturbed(windows_ms: Sample) -> NDArray[np.bool_]:
    """Which windows nothing from outside broke into: within OUTLIER robust standard deviations, or OUTLIER_FLOOR.

    Both sides alike, so that leaving out does not favour fast or slow. Under five windows all are kept.
    """
    if windows_ms.size < 5:
        return np.ones(windows_ms.size, dtype=np.bool_)
    middle = np.median(windows_ms)
    deviation = np.abs(windows_ms - middle)
    kept: NDArray[np.bool_] = deviation <= max(OUTLIER * 1.4826 * np.median(deviation), OUTLIER_FLOOR * middle)
    return kept
