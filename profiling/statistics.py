"""Figures of a sample of times, and of the ratio of paired times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from domain.result import RuntimeStats, Speedup

Sample = NDArray[np.float64]

BOOTSTRAP_DRAWS = 2000
CONFIDENCE = 95.0
DEVIATIONS = 1.96
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

    The ratio of the mean times; pairs are drawn together, so that drift which both saw cancels. The interval is widened
    by what the same kernel differs by from one process to the next (`between_processes`, the ratio's relative standard
    deviation), which no number of windows in one pair of processes averages out. None where the reference's time is
    not clear of zero: a ratio would mean nothing. A candidate's that is not gives a lower bound alone, `high` being
    infinite. Fewer than MIN_PAIRS pairs give no verdict.
    """
    reference, candidate = np.asarray(reference_ms), np.asarray(candidate_ms)
    if reference.size == 0:
        return None
    picks = np.random.default_rng(0).integers(0, reference.size, (BOOTSTRAP_DRAWS, reference.size))
    above, below = reference[picks].mean(axis=1), candidate[picks].mean(axis=1)
    tail = (100.0 - CONFIDENCE) / 2
    if not _clear(reference, above, tail):
        return None
    if not _clear(candidate, below, tail):
        return _at_least(float(np.percentile(above, tail)), resolved(candidate)[0], reference.size)
    clear = (above > 0) & (below > 0)
    above, below = above[clear], below[clear]
    ratio = float(reference.mean() / candidate.mean())
    inner = np.percentile(above / below, [tail, 100 - tail])
    low, high = (
        ratio * math.exp(sign * math.hypot(math.log(bound / ratio), DEVIATIONS * between_processes))
        for sign, bound in zip((-1, 1), inner, strict=True)
    )
    verdict = "faster" if low > 1.0 else "slower" if high < 1.0 else "not_distinguishable"
    if reference.size < MIN_PAIRS:
        verdict = "not_distinguishable"
    return Speedup(ratio=ratio, low=low, high=high, verdict=verdict)


def _clear(sample: Sample, means: Sample, tail: float) -> bool:
    """Whether a mean is above zero beyond what resampling leaves open."""
    return bool(sample.mean() > 0 and (means > 0).mean() * 100 >= 100 - tail)


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
