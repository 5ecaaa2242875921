"""The times of both sides as a drawing: each timed window a dot, in the order in which they were shot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.axis import Axis, Mark

LEFT, RIGHT = 12.0, 428.0
LANE, HEIGHT, TOP = 76.0, 44.0, 26.0
"""From one side's dots to the next one's, how high they stand, and what is above the first."""


@dataclass(frozen=True)
class Dot:
    """A window; `excluded`: something outside disturbed it, and it does not count."""

    x: float
    y: float
    excluded: bool


@dataclass(frozen=True)
class Lane:
    """One side: its dots, the place of its time, and the place of its name."""

    side: str
    dots: list[Dot]
    level_ms: float | None
    level: float | None
    top: float
    bottom: float


@dataclass(frozen=True)
class WindowsFigure:
    """The lanes over one axis. `axis_y` is below all of them."""

    lanes: list[Lane]
    marks: list[Mark]
    powers: bool
    axis_y: float
    height: float


def windows_figure(timings: Mapping[str, Mapping[str, Any] | None]) -> WindowsFigure | None:
    """Of each side's timing, by its name; None where no window's time is known."""
    known = {side: timing for side, timing in timings.items() if timing and timing.get("window_ms")}
    if not known:
        return None
    levels = {side: timing.get("latency_ms") for side, timing in known.items()}
    values = [ms for timing in known.values() for ms in timing["window_ms"]]
    axis = Axis.over([*values, *(level for level in levels.values() if level is not None)], LEFT, RIGHT)
    lanes = [
        _lane(side, timing, levels[side], axis, TOP + number * LANE)
        for number, (side, timing) in enumerate(known.items())
    ]
    bottom = lanes[-1].bottom + 12
    return WindowsFigure(lanes, axis.marks(5), axis.powers, bottom, bottom + 40)


def _lane(side: str, timing: Mapping[str, Any], level: float | None, axis: Axis, top: float) -> Lane:
    times, excluded = timing["window_ms"], set(timing.get("excluded_windows") or ())
    step = HEIGHT / max(len(times) - 1, 1)
    dots = [
        Dot(axis.place(ms), round(top + (number * step if len(times) > 1 else HEIGHT / 2), 2), number in excluded)
        for number, ms in enumerate(times)
    ]
    return Lane(side, dots, level, None if level is None else axis.place(level), top, top + HEIGHT)
