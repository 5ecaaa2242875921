"""Figures of a sample of times, and of the ratio of paired times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from domain.result import RuntimeStats, Speedup

Sample = NDArray[np.float64]

BOOTSTRAP_DRAWS = 2000
CONFIDENCE = 95.0
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


def speedup(reference_ms: Sequence[float] | Sample, candidate_ms: Sequence[float] | Sample) -> Speedup | None:
    """Reference over candidate from paired windows, with a 95 % percentile-bootstrap interval (Efron, 1979).

    The ratio is of the pairs' geometric mean, so that A/B and B/A are each other's inverse. None when a time is not
    positive: a ratio with it would mean nothing. Fewer than three pairs give no verdict.
    """
    reference, candidate = np.asarray(reference_ms), np.asarray(candidate_ms)
    if reference.size == 0 or (reference <= 0).any() or (candidate <= 0).any():
        return None
    logs = np.log(reference / candidate)
    picks = np.random.default_rng(0).integers(0, logs.size, (BOOTSTRAP_DRAWS, logs.size))
    tail = (100.0 - CONFIDENCE) / 2
    low, high = (float(np.exp(bound)) for bound in np.percentile(logs[picks].mean(axis=1), [tail, 100 - tail]))
    verdict = "not_distinguishable" if logs.size < 3 or low <= 1.0 <= high else "faster" if low > 1.0 else "slower"
    return Speedup(ratio=float(np.exp(logs.mean())), low=low, high=high, verdict=verdict)


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
