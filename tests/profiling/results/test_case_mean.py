"""Geometric means over cases."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import RuntimeStats, Speedup, Timing
from profiling.results.case_mean import mean_speedup, mean_timing
from profiling.stats.statistics import measured

ONE = Timing("gated_window", RuntimeStats(1.0), 1.0, 10, 3, 30, 0.1, "windows", "warm", relative_ci=0.02)


def test_a_time_is_the_geometric_mean_and_says_in_which_cases_it_is_flagged() -> None:
    flag = Flag(FlagCode.HOST_JITTER, "the host", {"host_ms": 1.0})
    other = replace(ONE, latency_ms=4.0, relative_ci=0.04, flags=[flag], windows=5, calls=50)
    timing = mean_timing([ONE, other], ["a", "b"])
    assert timing.latency_ms == timing.stats.mean == timing.stats.max == pytest.approx(2.0)
    assert (timing.windows, timing.calls, timing.relative_ci) == (8, 80, pytest.approx(0.03))
    assert [flag.code for flag in timing.flags] == [FlagCode.MEAN_OF_CASES, FlagCode.HOST_JITTER]
    assert timing.flags[1].message == "the host (in case 'b')" and timing.flags[1].data["cases"] == 1
    assert mean_timing([ONE, replace(other, relative_ci=None)], ["a", "b"]).relative_ci is None


def test_a_mean_of_bounds_stays_a_bound() -> None:
    exact, faster = measured(2.0, 1.9, 2.1), Speedup(3.0, 3.0, math.inf, "faster")
    assert mean_speedup([exact, None]) is None and mean_speedup([]) is None
    mean = mean_speedup([exact, faster])
    assert mean is not None and math.isinf(mean.ci_high) and mean.ci_low == pytest.approx(math.sqrt(1.9 * 3.0))
    mean = mean_speedup([exact, Speedup(0.5, 0.0, 0.5, "slower")])
    assert mean is not None and mean.ci_low == 0.0 and mean.ci_high == pytest.approx(math.sqrt(2.1 * 0.5))


@pytest.mark.parametrize("common", [0.0, 0.5, 1.0], ids=["independent", "mixed", "one error in all"])
def test_the_interval_of_the_mean_covers_whatever_the_errors_have_in_common(common: float) -> None:
    rng, covered, spread = np.random.default_rng(1), 0, 0.01
    for _ in range(1000):
        shared, own = rng.normal(0, spread), rng.normal(0, spread, 10)
        logs = math.sqrt(common) * shared + math.sqrt(1 - common) * own
        each = [measured(math.exp(x), math.exp(x - 1.96 * spread), math.exp(x + 1.96 * spread)) for x in logs]
        mean = mean_speedup(each)
        assert mean is not None
        covered += mean.ci_low <= 1.0 <= mean.ci_high
    assert covered >= 940  # 95 % of 1000, less two and a half standard errors of a share.
