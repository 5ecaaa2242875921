"""How often a kernel is told apart from itself, and from one 2 % slower, under the rule that ends a job's windows.

A simulation of windows with normal noise, a drift that both sides see, and what processes differ by.
"""

from __future__ import annotations

import numpy as np
import pytest

from domain.budget import Budget
from profiling.results.estimate import estimate
from profiling.results.speedup import paired_speedup, pairs_half_width
from profiling.stats.process_variance import LAUNCH_MS, WINDOW_MS
from profiling.stats.stopping_rule import Plan
from profiling.window.timed_window import Clock
from tests.kernel_windows import kernel_windows, window

EFFORT = Budget.DEFAULT.effort
JOBS = 400
AT_MOST = 0.06
"""5 % and a standard error of so many jobs."""
CALLS = 60
WINDOW, NULL, READY = 3.0, 0.16, 0.5
"""ms"""


def told_apart(noise: float, *, slower: float = 0.0, is_cuda: bool = True, num_trials: int = 100) -> float:
    """The share of jobs in which the candidate, by that much slower, is told apart."""
    rng = np.random.default_rng(int(1e6 * noise))
    return sum(_verdict(rng, noise, slower, is_cuda, num_trials) != "not_distinguishable" for _ in range(JOBS)) / JOBS


def _verdict(rng: np.random.Generator, noise: float, slower: float, is_cuda: bool, num_trials: int) -> str:
    both = [kernel_windows(CALLS, is_cuda=is_cuda, gated=is_cuda) for _ in range(2)]
    plan = Plan(num_trials, EFFORT.target_precision, is_cuda=is_cuda, min_rounds=EFFORT.min_rounds)
    apart = rng.normal(0, WINDOW_MS, 2) + CALLS * rng.normal(0, LAUNCH_MS, 2) if is_cuda else (0.0, 0.0)
    for rounds in range(1, num_trials + 1):
        drift, null = rng.normal(0, 0.005), NULL + rng.normal(0, 0.001)
        for windows, factor, process in zip(both, (1.0, 1.0 + slower), apart, strict=True):
            elapsed_ms = WINDOW * factor * (1 + drift + rng.normal(0, noise)) + null + process
            windows.usual.add(window(elapsed_ms, setup_ms=READY), Clock(null, READY))
        if plan.stop(rounds, 0.0, pairs_half_width(*map(estimate, both))) is not None:
            break
    found = paired_speedup(*map(estimate, both))
    assert found is not None
    return found.verdict


@pytest.mark.parametrize("is_cuda", [True, False])
@pytest.mark.parametrize("noise", [0.01, 0.015])
def test_a_kernel_is_told_apart_from_itself_in_five_percent_at_most(noise: float, is_cuda: bool) -> None:
    assert told_apart(noise, is_cuda=is_cuda) <= AT_MOST


def test_nor_by_a_job_of_few_trials() -> None:
    assert told_apart(0.02, num_trials=6) <= AT_MOST


def test_two_percent_are_told_apart_where_windows_are_steady() -> None:
    assert told_apart(0.003, slower=0.02) >= 0.95
