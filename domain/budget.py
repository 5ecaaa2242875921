"""The `budget` of a request: how much device time a job may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Budget(StrEnum):
    """The levels that a request may ask for. All levels compare outputs alike, with secret inputs and the gate."""

    QUICK = "quick"
    DEFAULT = "default"
    PRECISE = "precise"

    @property
    def effort(self) -> Effort:
        return _EFFORTS[self]

    def to_dict(self, *, compares: bool) -> dict[str, Any]:
        """The budget in a result. Only a comparison has checks that a level may skip."""
        return {"name": self.value, "skipped_checks": list(self.effort.skipped_checks) if compares else []}


@dataclass(frozen=True)
class Effort:
    """The effort of one budget level.

    - `target_precision`: timing stops at this half width of the 95 % interval, relative to the time. A request may
      override it.
    - `num_trials`: maximum rounds of windows. A request may override it.
    - `min_rounds`: minimum rounds of windows.
    - `device_time`: factor of the usual time for narrowing the interval.
    - `window`: factor of the usual length of a comparison's window. Drawing and comparing its calls takes most of its
      cost.
    - `lone_window`: the same for a kernel alone, whose windows start sooner or later in each process (docs/adr/0022).
    - `validation_sets`: fresh input sets that are compared before the timing.
    - `processes`, `pairs`: processes that a kernel alone, or a comparison, is judged in, one after the other. A
      kernel's time differs more between processes than between windows (docs/adr/0021). Rounds and time are divided
      among them.
    - `skipped_checks`: names of further checks that the level skips; a `thorough` level skips none.
    """

    target_precision: float
    num_trials: int
    min_rounds: int
    device_time: float
    window: float
    lone_window: float
    validation_sets: int
    processes: int = 1
    pairs: int = 1
    skipped_checks: tuple[str, ...] = ()

    @property
    def thorough(self) -> bool:
        return not self.skipped_checks


OTHER_DISTRIBUTIONS, OTHER_WEIGHTS, FLOAT64 = "other_distributions", "other_weights", "float64_precision"

_EFFORTS = {
    Budget.QUICK: Effort(0.05, 20, 4, 0.25, 0.5, 0.5, 2, skipped_checks=(OTHER_DISTRIBUTIONS, OTHER_WEIGHTS, FLOAT64)),
    Budget.DEFAULT: Effort(0.01, 100, 6, 1.0, 1.0, 3.0, 5),
    Budget.PRECISE: Effort(0.002, 1000, 20, 10.0, 1.0, 3.0, 20, processes=12, pairs=4),
}
