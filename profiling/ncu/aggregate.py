"""Aggregates the counters of several launches: sums of counts, and means of rates weighted by duration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from profiling.ncu.csv_report import Launch

DURATION = "gpu__time_duration.sum"


class CounterTotals:
    """The counters of one kernel's launches, or of a whole call. A figure that a launch lacks is None, never 0."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = launches
        self.longest = max(launches, key=lambda launch: launch.values.get(DURATION, 0.0))

    @property
    def seconds(self) -> float | None:
        """The time of all launches in s, as ncu measured them: one after another, with cold caches."""
        return self.total(DURATION)

    def total(self, name: str) -> float | None:
        """The sum over all launches; None if one lacks the figure, because a partial sum would look complete."""
        values = [launch.values[name] for launch in self.launches if name in launch.values]
        return sum(values) if len(values) == len(self.launches) else None

    def mean(self, name: str) -> float | None:
        """The mean of the launches that have the figure, weighted by their duration."""
        launches = [launch for launch in self.launches if name in launch.values]
        if not launches:
            return None
        weights = [launch.values.get(DURATION, 0.0) for launch in launches]
        if not sum(weights):
            weights = [1.0] * len(launches)
        values = (launch.values[name] * weight for launch, weight in zip(launches, weights, strict=True))
        return sum(values) / sum(weights)

    def of_longest(self, name: str) -> float | None:
        """A launch parameter of the longest launch: a block size, for example, has no mean."""
        return self.longest.values.get(name)

    def summed(self, names: Iterable[str]) -> float | None:
        """The sum of several totals; None if one is unknown."""
        totals = [self.total(name) for name in names]
        values = [one for one in totals if one is not None]
        return sum(values) if len(values) == len(totals) else None


def ratio(above: float | None, below: float | None, times: float = 1.0) -> float | None:
    """`above` divided by `below`; None if one is unknown or `below` is 0."""
    return None if above is None or not below else times * above / below


def rounded(value: Any) -> Any:
    """The value with nine significant digits, more than counters are accurate to; whole numbers become integers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
