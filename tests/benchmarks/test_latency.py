"""The arithmetic of the benchmark."""

from __future__ import annotations

import random
import statistics

import pytest

from benchmarks.latency import Latency, percentile


def test_percentiles_of_known_samples() -> None:
    latency = Latency.of([0.005, 0.001, 0.003, 0.002, 0.004])
    assert (latency.count, latency.p50, latency.longest) == (5, pytest.approx(3.0), pytest.approx(5.0))
    assert (latency.p95, latency.p99) == (pytest.approx(4.8), pytest.approx(4.96))
    assert percentile([7.0], 0.99) == 7.0


def test_percentiles_agree_with_the_standard_library() -> None:
    samples = sorted(random.Random(1).random() for _ in range(137))
    expected = statistics.quantiles(samples, n=100, method="inclusive")
    assert [percentile(samples, share / 100) for share in range(1, 100)] == pytest.approx(expected)
