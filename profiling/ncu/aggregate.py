"""Figures of several launches as one: sums for counts, means weighted by duration for rates and percentages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from profiling.ncu.csv_report import Launch

DURATION = "gpu__time_duration.sum"


class CounterTotals:
    """The launches of one kernel, or of a whole call. A figure that a launch lacks is None, never 0."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = launches
        self.longest = max(launches, key=lambda launch: launch.values.get(DURATION, 0.0))

    @property
    def seconds(self) -> float | None:
        """Of all launches, as ncu timed them: one after another, with cold caches."""
        return self.total(DURATION)

    def total(self, name: str) -> float | None:
        """The sum; None unless every launch has the figure, for a part would look like all."""
        known = [launch.values[name] for launch in self.launches if name in launch.values]
        return sum(known) if len(known) == len(self.launches) else None

    def mean(self, name: str) -> float | None:
        """The mean of the launches that have the figure, weighted by their duration."""
        known = [launch for launch in self.launches if name in launch.values]
        if not known:
            return None
        weights = [launch.values.get(DURATION, 0.0) for launch in known]
        if not sum(weights):
            weights = [1.0] * len(known)
        return sum(launch.values[name] * weight for launch, weight in zip(known, weights, strict=True)) / sum(weights)

    def of_longest(self, name: str) -> float | None:
        """A parameter of the launch, of the longest one: block sizes have no mean."""
        return self.longest.values.get(name)

    def summed(self, names: Iterable[str]) -> float | None:
        """The sum of several totals; None where one is not known."""
        totals = [self.total(name) for name in names]
        known = [one for one in totals if one is not None]
        return sum(known) if len(known) == len(totals) else None


def ratio(above: float | None, below: float | None, times: float = 1.0) -> float | None:
    """`above` in `below`, None where one is not known or there is nothing to divide by."""
    return None if above is None or not below else times * above / below


def rounded(value: Any) -> Any:
    """Nine digits are more than a counter is good for; whole figures are whole numbers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
