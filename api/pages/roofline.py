"""Places each side's time beneath the measured peaks of the GPU, in words and as a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.axis import Axis, Mark
from api.pages.facts import Facts
from domain.speed.headroom import Basis

LEFT, RIGHT = 64.0, 424.0
TOP, BOTTOM = 12.0, 180.0
ROOM = 4.0
"""Ratio by which the axes extend beyond the points and the ridge."""
BOUND = {
    "memory": "the memory: it moves its tensors nearly as fast as this card can",
    "arithmetic": "the arithmetic: it computes nearly as fast as this card can",
    "neither": "neither: launches, latency, traffic beyond its tensors, or work that is not counted",
}


@dataclass(frozen=True)
class Point:
    """A side in the drawing."""

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
    """Each side's facts; `figure` where the number of operations is known."""

    sides: list[tuple[str, Facts]]
    figure: RooflineFigure | None
    text: str


def roofline(sides: Mapping[str, Mapping[str, Any] | None]) -> Roofline | None:
    """The roofline of the kernels' results by side; None without the GPU's peaks or without a time."""
    positions = {side: one["roofline"] for side, one in sides.items() if one and one.get("roofline")}
    if not positions:
        return None
    text = "; ".join(
        f"{side}: {words.flops_per_s(position['flops_per_s'])} at "
        f"{words.figure(position['flops_per_byte'])} operations a byte"
        for side, position in positions.items()
        if position.get("flops_per_byte")
    )
    facts = [(side, [*_facts(position), *_headroom(sides[side] or {})]) for side, position in positions.items()]
    return Roofline(facts, _figure(positions), f"{text}.")


def _facts(position: Mapping[str, Any]) -> Facts:
    moved = f"{words.size(position['bytes'])} a call, {words.size(position['bytes_per_s'])}/s"
    computed = "not counted: request “profile” with a reference made of torch's operators"
    if position.get("flops") is not None:
        computed = "none that torch's counter covers (products, convolutions, attention)"
    if position.get("flops_per_s"):
        intensity = words.figure(position["flops_per_byte"])
        computed = f"{words.flops_per_s(position['flops_per_s'])}, {intensity} operations a byte"
    facts: Facts = [
        ("Input and output tensors", moved),
        ("… of the memory's rate", words.share(position["memory_share"])),
        ("The reference's operations", computed),
    ]
    if position.get("flops_per_s"):
        facts.append(("… of the arithmetic's rate", words.share(position["arithmetic_share"])))
    return [*facts, ("Bound by", BOUND.get(position["bound"], words.NONE))]


def _headroom(one: Mapping[str, Any]) -> Facts:
    remaining = one.get("headroom") or {}
    if remaining.get("ratio") is None:
        return []
    counted = "bytes and operations" if remaining["basis"] == Basis.BYTES_AND_OPERATIONS else "bytes alone"
    return [("Time over the least time", f"{words.figure(remaining['ratio'])} ({remaining['bound']}; {counted})")]


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
