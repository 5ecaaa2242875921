"""Where each side's time lies beneath what the card was measured to do: in words, and as a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.axis import Axis, Mark
from api.pages.facts import Facts

LEFT, RIGHT = 64.0, 424.0
TOP, BOTTOM = 12.0, 180.0
ROOM = 4.0
"""How many times further than the points and the ridge the axes go."""
BOUND = {
    "memory": "the memory: it moves its tensors nearly as fast as this card can",
    "arithmetic": "the arithmetic: it computes nearly as fast as this card can",
    "neither": "neither: launches, latency, traffic beyond its tensors, or work that is not counted",
}


@dataclass(frozen=True)
class Point:
    """A side, in the drawing."""

    side: str
    x: float
    y: float


@dataclass(frozen=True)
class RooflineFigure:
    """Points beneath the two roofs; `slope` and `flat` are where the memory's and the arithmetic's begin and end."""

    points: list[Point]
    slope: tuple[float, float, float, float]
    flat: tuple[float, float, float, float]
    intensities: list[Mark]
    rates: list[tuple[str, float]]


@dataclass(frozen=True)
class Roofline:
    """Each side's facts; `figure` where the operations are known."""

    sides: list[tuple[str, Facts]]
    figure: RooflineFigure | None
    told: str


def roofline(sides: Mapping[str, Mapping[str, Any] | None]) -> Roofline | None:
    """Of the kernels' results by their side; None where the card's rates are not known, or nothing was timed."""
    places = {side: one["roofline"] for side, one in sides.items() if one and one.get("roofline")}
    if not places:
        return None
    told = "; ".join(
        f"{side}: {words.flops_per_s(place['flops_per_s'])} at "
        f"{words.figure(place['flops_per_byte'])} operations a byte"
        for side, place in places.items()
        if place.get("flops_per_byte")
    )
    return Roofline([(side, _facts(place)) for side, place in places.items()], _figure(places), f"{told}.")


def _facts(place: Mapping[str, Any]) -> Facts:
    moved = f"{words.size(place['bytes'])} a call, {words.size(place['bytes_per_s'])}/s"
    computed = "not counted: ask with “profile”, for a reference made of torch's operators"
    if place.get("flops") is not None:
        computed = "none that torch's counter knows (products, convolutions, attention)"
    if place.get("flops_per_s"):
        computed = (
            f"{words.flops_per_s(place['flops_per_s'])}, {words.figure(place['flops_per_byte'])} operations a byte"
        )
    told: Facts = [
        ("Tensors given and returned", moved),
        ("… of the memory's rate", words.share(place["memory_share"])),
        ("The reference's operations", computed),
    ]
    if place.get("flops_per_s"):
        told.append(("… of the arithmetic's rate", words.share(place["arithmetic_share"])))
    return [*told, ("Bound by", BOUND.get(place["bound"], words.NONE))]


def _figure(places: Mapping[str, Mapping[str, Any]]) -> RooflineFigure | None:
    """Intensity and rate in equal ratios; None where a roof or every point is not known."""
    placed = {side: place for side, place in places.items() if place.get("flops_per_byte") and place.get("flops_per_s")}
    roofs = next(((p.get("roof_bytes_per_s"), p.get("roof_flops_per_s")) for p in placed.values()), (None, None))
    if not roofs[0] or not roofs[1]:
        return None
    memory, arithmetic = float(roofs[0]), float(roofs[1])
    ridge = arithmetic / memory
    found = [place["flops_per_byte"] for place in placed.values()]
    x = Axis.over([min(*found, ridge) / ROOM, max(*found, ridge) * ROOM], LEFT, RIGHT, powers=True)
    rates = [place["flops_per_s"] for place in placed.values()]
    y = Axis.over([min(*rates, x.low * memory) / ROOM, max(*rates, arithmetic) * ROOM], BOTTOM, TOP, powers=True)
    meet, roof = x.place(ridge), y.place(arithmetic)
    return RooflineFigure(
        points=[Point(side, x.place(p["flops_per_byte"]), y.place(p["flops_per_s"])) for side, p in placed.items()],
        slope=(x.place(x.low), y.place(x.low * memory), meet, roof),
        flat=(meet, roof, x.place(x.high), roof),
        intensities=x.marks(5),
        rates=[(words.flops_per_s(mark.value), mark.place) for mark in y.marks(4)],
    )
