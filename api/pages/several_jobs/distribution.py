"""Draws the speed-ups of many jobs as dots on one axis, stacked where they are close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from api.pages import words
from api.pages.axis import Axis, Mark
from api.pages.several_jobs.rows import JobRow
from api.pages.speedup import LEFT, RIGHT

STEP = 9.0
"""Width of a column of dots, and distance of two dots in it, in units of the drawing."""
MAX_STACK = 20
"""Maximum dots of a column; more of them move closer together."""


@dataclass(frozen=True)
class Dot:
    """A job in the drawing; `text` names it and its speed-up."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Distribution:
    """Dots above an axis at `axis_y`; `one` is the place of a speed-up of 1."""

    dots: list[Dot]
    marks: list[Mark]
    one: float
    axis_y: float
    text: str


def distribution(rows: Sequence[JobRow]) -> Distribution | None:
    """The drawing of all measured speed-ups; None without any."""
    ratios = sorted(
        (ratio, row.title) for row in rows if (one := row.view.summary) and (ratio := one.ratio) and ratio > 0
    )
    if not ratios:
        return None
    axis = Axis.over([ratio for ratio, _ in ratios] + [0.9, 1.1], LEFT, RIGHT, powers=True)
    columns = [LEFT + STEP * round((axis.place(ratio) - LEFT) / STEP) for ratio, _ in ratios]
    heights = Counter(columns)
    tallest = min(max(heights.values()), MAX_STACK)
    axis_y = 18.0 + STEP * tallest
    stacked: Counter[float] = Counter()
    dots = []
    for x, (ratio, title) in zip(columns, ratios, strict=True):
        distance = STEP * min(1.0, MAX_STACK / heights[x])
        dots.append(Dot(x, round(axis_y - 7 - distance * stacked[x], 2), f"{title}: {words.figure(ratio)}×"))
        stacked[x] += 1
    middle = ratios[len(ratios) // 2][0]
    text = (
        f"{words.counted(len(ratios), 'speed-up')} from {words.figure(ratios[0][0])} to {words.figure(ratios[-1][0])}, "
        f"the median {words.figure(middle)}."
    )
    return Distribution(dots, axis.marks(5), axis.place(1.0), axis_y, text)
