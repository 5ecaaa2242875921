"""The speed-ups over other forms of the reference, as a tile each and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from domain.speed.baseline import Baseline


@dataclass(frozen=True)
class Tile:
    """`value` is the speed-up, or a word where there is none; `small` its interval, or why."""

    title: str
    value: str
    small: str


def tiles(result: Mapping[str, Any]) -> list[Tile]:
    """A tile for each baseline but the reference as it was sent, which has the speed-up's own."""
    return [_tile(each) for each in _others(result)]


def sentence(result: Mapping[str, Any]) -> str:
    """The speed-up over torch.compile, with a blank before it; empty where it was not asked for."""
    return "".join(f" {_sentence(each)}" for each in _others(result))


def _others(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in result.get("baselines") or () if each["name"] != Baseline.EAGER]


def _tile(each: Mapping[str, Any]) -> Tile:
    title, speedup = f"Over torch.{each['name']}", each["speedup"]
    if speedup is None:
        return Tile(title, "unknown", each["unavailable"]["code"].replace("_", " "))
    interval = f"95 %: {words.figure(speedup['ci_low'])} to {words.figure(speedup['ci_high'])}"
    breaks = f"; {words.counted(each['graph_breaks'], 'graph break')}" if each["graph_breaks"] else ""
    return Tile(title, f"{words.figure(speedup['ratio'])}×", interval + breaks)


def _sentence(each: Mapping[str, Any]) -> str:
    speedup, reference = each["speedup"], f"the reference under torch.{each['name']}"
    if speedup is None:
        return f"Its speed-up over {reference} is unknown: {words.sentence(each['unavailable']['message'])}"
    low, high = words.figure(speedup["ci_low"]), words.figure(speedup["ci_high"])
    ratio = words.figure(speedup["ratio"])
    return f"It is {ratio} times as fast as {reference} (95 % interval {low} to {high})."
