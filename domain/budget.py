"""How much of the device a job may cost: what each `budget` of a request stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Budget(StrEnum):
    """What a request may ask for. No level changes how an answer is compared, how secret inputs are, or the gate."""

    QUICK = "quick"
    DEFAULT = "default"
    PRECISE = "precise"

    @property
    def effort(self) -> Effort:
        return _EFFORTS[self]

    def told(self, *, compares: bool) -> dict[str, Any]:
        """What the answer says of it. All that a level leaves out is a comparison's."""
        return {"name": self.value, "skipped_checks": list(self.effort.skipped_checks) if compares else []}


@dataclass(frozen=True)
class Effort:
    """What a level does.

    Timing stops where half the 95 % interval, relative, is `target_precision`, and `num_trials` bounds its rounds: both
    hold unless the request names its own. `min_rounds` are always taken, and narrowing the interval may hold the device
    `device_time` times as long as usual. A comparison's window lasts `window` times as long as usual, what it costs the
    device being mostly drawing, laying out and comparing its calls; one of a kernel alone `lone_window` times as long,
    as windows begin sooner or later in each process (docs/adr/0037). `validation_sets` are the fresh input sets
    compared before the timing. A kernel alone is judged in so many `processes` one after the other, a comparison in so
    many `pairs` of them: what a kernel takes differs between them by more than its windows do in one (docs/adr/0038).
    What is said above of rounds and of time is shared out among them.
    What is not `thorough` asks nothing beyond that: `skipped_checks` names what.
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
