"""Statistics of repeated latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Latency:
    """Percentiles and the mean in milliseconds, of `count` samples."""

    count: int
    p50: float
    p95: float
    p99: float
    longest: float
    mean: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        ordered = sorted(1e3 * sample for sample in seconds)
        mean = sum(ordered) / len(ordered)
        p50, p95, p99, longest = (percentile(ordered, share) for share in (0.5, 0.95, 0.99, 1.0))
        return cls(len(ordered), p50, p95, p99, longest, mean)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted samples lie, interpolated linearly."""
    rank = share * (len(ordered) - 1)
    below = ordered[int(rank)]
    above = ordered[min(int(rank) + 1, len(ordered) - 1)]
    return below + (rank - int(rank)) * (above - below)
