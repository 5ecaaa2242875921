"""The speed-up as a drawing: the ratio, its 95 % interval, and where 1 lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.axis import Axis, Mark

LEFT, RIGHT = 16.0, 424.0
WORD = 70.0
"""Half of what the word at 1 takes."""


@dataclass(frozen=True)
class SpeedupFigure:
    """Places along the drawing. `anchor` is how the word at 1 stands to it. `open_low`, `open_high`: no such end."""

    low: float
    ratio: float
    high: float
    one: float
    anchor: str
    marks: list[Mark]
    open_low: bool
    open_high: bool


def speedup_figure(speedup: Mapping[str, Any]) -> SpeedupFigure | None:
    """None for a ratio that is no number."""
    ratio, low, high = (speedup.get(name) for name in ("ratio", "ci_low", "ci_high"))
    if not isinstance(ratio, int | float) or ratio <= 0:
        return None
    open_low, open_high = not low, high is None
    left, right = low or ratio / 2, high if high is not None else ratio * 2
    axis = Axis.over([left, right, ratio, 1.0, 0.9, 1.1], LEFT, RIGHT, powers=True)
    low_at, at, high_at, one = (axis.place(value) for value in (left, ratio, right, 1.0))
    anchor = "start" if one < WORD else "end" if one > RIGHT - WORD else "middle"
    return SpeedupFigure(low_at, at, high_at, one, anchor, axis.marks(5), open_low, open_high)
