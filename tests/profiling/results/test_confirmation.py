"""A second measurement about the first: whether they agree, and what both support."""

from __future__ import annotations

import math

import pytest

from domain.result import Speedup
from domain.speed.confirmation import Finding, FirstResult
from profiling.results.confirmation import combined, compare_speedups
from profiling.stats.statistics import measured


def ratio(value: float, margin: float = 0.01) -> Speedup:
    return measured(value, value / (1 + margin), value * (1 + margin))


@pytest.mark.parametrize(
    ("first", "second", "finding", "stands"),
    [
        (ratio(2.0), ratio(2.01), Finding.CONFIRMED, True),
        (ratio(2.0), ratio(1.6), Finding.SMALLER, False),
        (ratio(2.0), ratio(2.6), Finding.LARGER, True),
        (ratio(1.05), ratio(1.0), Finding.VANISHED, False),
        (ratio(1.05), ratio(0.8), Finding.VANISHED, False),
        (ratio(1.0, 0.02), ratio(1.004, 0.001), Finding.CONFIRMED, True),
        (ratio(0.5), ratio(0.5), Finding.CONFIRMED, True),
        (ratio(0.5), ratio(0.4), Finding.SMALLER, False),
        (ratio(2.0), measured(3.0, 3.0, math.inf), Finding.ONLY_BOUNDS, None),
        (ratio(2.0), None, Finding.NOT_MEASURED, None),
    ],
)  # fmt: skip
def test_what_the_second_says_about_the_first(
    first: Speedup, second: Speedup | None, finding: Finding, stands: bool | None
) -> None:
    found = compare_speedups(first, second)
    assert (found, found.stands) == (finding, stands)


def test_a_difference_within_both_intervals_is_none() -> None:
    assert compare_speedups(ratio(2.0, 0.05), ratio(1.9, 0.05)) is Finding.CONFIRMED
    assert compare_speedups(ratio(2.0, 0.005), ratio(1.9, 0.005)) is Finding.SMALLER


def test_together_they_are_more_precise_and_lie_nearer_to_the_more_precise_one() -> None:
    both = combined(ratio(2.0, 0.02), ratio(2.02, 0.005))
    assert both is not None and 2.01 < both.ratio < 2.02 and both.verdict == "faster"
    assert both.ci_high / both.ci_low < 1.005**2
    assert combined(ratio(2.0), measured(3.0, 3.0, math.inf)) is None


def test_where_they_disagree_the_interval_covers_about_both() -> None:
    both = combined(ratio(2.0, 0.01), ratio(1.6, 0.01))
    assert both is not None and both.ci_low < 1.61 and both.ci_high > 1.99


def test_a_first_result_survives_the_record() -> None:
    first = FirstResult("a", measured(3.0, 3.0, math.inf), "node7", 1, "h200")
    assert first.to_wire()["speedup"]["ci_high"] is None
    assert FirstResult.from_wire(first.to_wire()) == first


@pytest.mark.parametrize("body", [{"verdict": "passed", "speedup": None}, {"verdict": "wrong_result"}])
def test_without_a_speedup_there_is_nothing_to_confirm(body: dict[str, object]) -> None:
    assert FirstResult.of("a", body) is None
