"""Draws speed-ups with their intervals over an axis, such as the size of a case or the number of an attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.axis import Axis, Mark

LEFT, RIGHT, TOP, BOTTOM = 52.0, 428.0, 12.0, 180.0


@dataclass(frozen=True)
class Measured:
    """A speed-up and where it belongs on the axis. `low` and `high` are the interval's ends."""

    at: float
    low: float
    ratio: float
    high: float
    title: str

    @classmethod
    def of(cls, at: float, speedup: Mapping[str, Any], title: str) -> Measured:
        """From `ratio`, `ci_low` and `ci_high`; an open end is drawn at half or twice the ratio."""
        ratio, low, high = (speedup[name] for name in ("ratio", "ci_low", "ci_high"))
        return cls(at, low or ratio / 2, ratio, high if high is not None else ratio * 2, title)


@dataclass(frozen=True)
class Point:
    """A speed-up in the drawing."""

    x: float
    y: float
    low: float
    high: float
    title: str


@dataclass(frozen=True)
class IntervalPlot:
    """Points over marks; `one` is the height of a speed-up of 1, `line` the points of a polyline, or empty."""

    points: list[Point]
    across: list[Mark]
    up: list[Mark]
    one: float
    line: str
    text: str


def interval_plot(
    measured: Sequence[Measured], *, powers: bool, line: Sequence[tuple[float, float]] = (), whole: bool = False
) -> IntervalPlot:
    """The drawing of at least one speed-up. `powers`: a logarithmic axis; `whole`: marks at whole numbers alone."""
    ends = [end for each in measured for end in (each.low, each.high)]
    x = Axis.over([each.at for each in measured], LEFT, RIGHT, powers=powers)
    y = Axis.over([*ends, 0.9, 1.1], BOTTOM, TOP, powers=True)
    return IntervalPlot(
        points=[
            Point(x.place(each.at), y.place(each.ratio), y.place(each.low), y.place(each.high), each.title)
            for each in measured
        ],
        across=[mark for mark in x.marks(8 if whole else 4) if not whole or mark.value.is_integer()],
        up=y.marks(5),
        one=y.place(1.0),
        line=" ".join(f"{x.place(at)},{y.place(ratio)}" for at, ratio in line),
        text="; ".join(f"{each.title}: {words.figure(each.ratio)}" for each in measured[-32:]) + ".",
    )
