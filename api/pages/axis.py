"""The axis of a drawing: maps values to positions and chooses its marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MARGIN = 0.06
"""Share of the length left free at each end."""
MIN_LOG_RATIO = 6.0
"""Minimum ratio of the largest to the smallest value for a logarithmic axis."""
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
POWER_MARKS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))


@dataclass(frozen=True)
class Mark:
    value: float
    place: float


@dataclass(frozen=True)
class Axis:
    """Maps `low` to `high` onto the positions `start` to `end`; `powers` makes it logarithmic."""

    low: float
    high: float
    start: float
    end: float
    powers: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, powers: bool | None = None) -> Axis:
        """An axis that covers all values; with `powers` None, linear or logarithmic as suits them."""
        low, high = min(values), max(values)
        if powers is None:
            powers = low > 0 and high / low > MIN_LOG_RATIO
        if powers:
            room = max(math.log(high / low), 0.05) * MARGIN
            return cls(low * math.exp(-room), high * math.exp(room), start, end, True)
        room = max(high - low, 0.02 * abs(high), 1e-9) * MARGIN
        return cls(low - room, high + room, start, end)

    def place(self, value: float) -> float:
        """The value's position, limited to the axis."""
        if self.powers:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(part, 0.0), 1.0) * (self.end - self.start), 2)

    def marks(self, about: int = 5) -> list[Mark]:
        """Round values along the axis, roughly `about` of them."""
        values = self._powers(about) if self.powers else self._evenly(about)
        return [Mark(value, self.place(value)) for value in values if self.low <= value <= self.high]

    def _evenly(self, about: int) -> list[float]:
        rough = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * step for step in STEPS if unit * step >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]

    def _powers(self, about: int) -> list[float]:
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in POWER_MARKS:
            values = [digit * 10.0**exponent for exponent in exponents for digit in digits]
            inside = [float(f"{value:.12g}") for value in values if self.low <= value <= self.high]
            if len(inside) <= about + 1:
                break
        # No two round powers may lie on a short logarithmic axis, which then looks linear.
        return inside if len(inside) > 1 else self._evenly(about)
