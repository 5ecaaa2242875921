"""Places each side's time beneath the measured peaks of the GPU, in words and as a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.axis import Axis, Mark

LEFT, RIGHT = 64.0, 424.0
TOP, BOTTOM = 12.0, 180.0
ROOM = 4.0
"""Ratio by which the axes extend beyond the points and the ridge."""


@dataclass(frozen=True)
class Point:
    side: str
    x: float
    y: float


@dataclass(frozen=True)
class RooflineFigure:
    """Points beneath the two roofs; `slope` and `flat` are the ends of the memory's and the arithmetic's roof."""

    points: list[Point]
    slope: tuple[float, float, float, float]
    flat: tuple[float, float, float, float]
    intensities: list[Mark]
    rates: list[tuple[str, float]]


@dataclass(frozen=True)
class Roofline:
    """Each side that has a place beneath the roof; `figure` where the number of operations is known."""

    sides: Mapping[str, Mapping[str, Any]]
    figure: RooflineFigure | None
    text: str


def roofline(sides: Mapping[str, Mapping[str, Any] | None]) -> Roofline | None:
    """The roofline of the kernels' results by side; None without the GPU's peaks or without a time."""
    placed = {side: one for side, one in sides.items() if one and one.get("roofline")}
    positions = {side: one["roofline"] for side, one in placed.items()}
    if not positions:
        return None
    text = "; ".join(
        f"{side}: {words.flops_per_s(position['flops_per_s'])} at "
        f"{words.figure(position['flops_per_byte'])} operations a byte"
        for side, position in positions.items()
        if position.get("flops_per_byte")
    )
    return Roofline(placed, _figure(positions), f"{text}.")


def _figure(positions: Mapping[str, Mapping[str, Any]]) -> RooflineFigure | None:
    """Draws intensity and rate on logarithmic axes; None without a roof or a point."""
    placed = {
        side: position
        for side, position in positions.items()
        if position.get("flops_per_byte") and position.get("flops_per_s")
    }
    roofs = next(((p.get("roof_bytes_per_s"), p.get("roof_flops_per_s")) for p in placed.values()), (None, None))
    if not roofs[0] or not roofs[1]:
        return None
    memory, arithmetic = float(roofs[0]), float(roofs[1])
    ridge = arithmetic / memory
    intensities = [position["flops_per_byte"] for position in placed.values()]
    x = Axis.over([min(*intensities, ridge) / ROOM, max(*intensities, ridge) * ROOM], LEFT, RIGHT, powers=True)
    rates = [position["flops_per_s"] for position in placed.values()]
    y = Axis.over([min(*rates, x.low * memory) / ROOM, max(*rates, arithmetic) * ROOM], BOTTOM, TOP, powers=True)
    meet, roof = x.place(ridge), y.place(arithmetic)
    return RooflineFigure(
        points=[Point(side, x.place(p["flops_per_byte"]), y.place(p["flops_per_s"])) for side, p in placed.items()],
        slope=(x.place(x.low), y.place(x.low * memory), meet, roof),
        flat=(meet, roof, x.place(x.high), roof),
        intensities=x.marks(5),
        rates=[(words.flops_per_s(mark.value), mark.place) for mark in y.marks(4)],
    )
