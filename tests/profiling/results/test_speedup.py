"""The speed-up over a baseline, from two speed-ups over the same reference."""

from __future__ import annotations

import math

import pytest

from profiling.results.speedup import speedup_over
from profiling.stats.statistics import measured


def test_errors_add_in_quadrature() -> None:
    found = speedup_over(measured(3.0, 3.0 / 1.03, 3.0 * 1.03), measured(1.5, 1.5 / 1.04, 1.5 * 1.04))
    assert found is not None and found.ratio == pytest.approx(2.0) and found.verdict == "faster"
    expected = math.exp(math.hypot(math.log(1.03), math.log(1.04)))
    assert (found.ratio / found.ci_low, found.ci_high / found.ratio) == pytest.approx((expected, expected))


def test_a_kernel_that_only_beats_the_eager_reference_is_slower() -> None:
    found = speedup_over(measured(1.5, 1.49, 1.51), measured(2.0, 1.99, 2.01))
    assert found is not None and found.verdict == "slower"


@pytest.mark.parametrize("bound", [measured(3.0, 3.0, math.inf), measured(0.5, 0.0, 0.5)])
def test_a_bound_gives_none(bound: object) -> None:
    exact = measured(2.0, 1.9, 2.1)
    assert speedup_over(exact, bound) is None and speedup_over(bound, exact) is None  # type: ignore[arg-type]
