"""Draws the times of both sides: a dot for each timed window, in order of measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.axis import Axis, Mark

LEFT, RIGHT = 12.0, 428.0
LANE, HEIGHT, TOP = 76.0, 44.0, 26.0
"""Distance between the sides' dots, the height of one side's dots, and the space above the first."""


@dataclass(frozen=True)
class Dot:
    """A window; `excluded`: an outside disturbance, so it does not count."""

    x: float
    y: float
    excluded: bool


@dataclass(frozen=True)
class Lane:
    """One side: its dots, the position of its time, and the position of its name."""

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
    """The drawing of the sides' timings, by name; None without any window times."""
    timed = {side: timing for side, timing in timings.items() if timing and timing.get("window_ms")}
    if not timed:
        return None
    levels = {side: timing.get("latency_ms") for side, timing in timed.items()}
    values = [ms for timing in timed.values() for ms in timing["window_ms"]]
    axis = Axis.over([*values, *(level for level in levels.values() if level is not None)], LEFT, RIGHT)
    lanes = [
        _lane(side, timing, levels[side], axis, TOP + number * LANE)
        for number, (side, timing) in enumerate(timed.items())
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
