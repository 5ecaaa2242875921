"""The speed-ups over other forms of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.pages import words
from domain.speed.baseline import Baseline


def sentence(result: Mapping[str, Any]) -> str:
    """The speed-up over torch.compile, with a blank before it; empty where it was not asked for."""
    return "".join(f" {_sentence(each)}" for each in others(result))


def others(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every baseline but the reference as it was sent, whose speed-up is the result's own."""
    return [each for each in result.get("baselines") or () if each["name"] != Baseline.EAGER]


def _sentence(each: Mapping[str, Any]) -> str:
    speedup, reference = each["speedup"], f"the reference under torch.{each['name']}"
    if speedup is None:
        return f"Its speed-up over {reference} is unknown: {words.sentence(each['unavailable']['message'])}"
    low, high = words.figure(speedup["ci_low"]), words.figure(speedup["ci_high"])
    ratio = words.figure(speedup["ratio"])
    return f"It is {ratio} times as fast as {reference} (95 % interval {low} to {high})."
