"""What the hardware counters say of each kernel, in words; all of it by the word of the submission's own processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.untyped import Told, members, obj, objects
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.artifact_store import Entry, entries

MEASURED = "measured"
FULL = 99.5
"""Per cent from which on an occupancy is limited by nothing."""
SHOWN, STALLS = 12, 3
"""Kernels of a side, and reasons to wait of a kernel."""


@dataclass(frozen=True)
class Row:
    """One kernel in words. `sm` and `memory` are per cent of their peak, for the bars; None where not known."""

    name: str
    time: str
    sm: float | None
    memory: float | None
    dram: str
    hits: str
    occupancy: str
    tensor: str
    roofline: str
    stalls: str
    requested_metrics: list[tuple[str, str]]


@dataclass(frozen=True)
class Side:
    """One side: its kernels, how many more there are, and the advice, each with its kernel and its figures.

    `reason` says why there are none, or which are left out; `report` is the profiler's own, where that is kept or
    cannot be had.
    """

    side: str
    title: str
    reason: str | None
    rows: list[Row]
    more: int
    advice: list[tuple[str, str, str]]
    report: Entry | None


@dataclass(frozen=True)
class Counters:
    """Both sides; `reason` says why there is nothing, `by` what read them."""

    reason: str | None
    by: str
    sides: list[Side]


def counters(result: Told) -> Counters | None:
    """Of an answer; None where nobody requested_metrics."""
    told = (result["kernel_exec_result"].get("metadata") or {}).get("device_metrics")
    if not isinstance(told, Mapping):
        return None
    titles = {CANDIDATE: CANDIDATE if result.get("ref_result") else "kernel", REFERENCE: REFERENCE}
    reports = {entry.side: entry for entry in entries(dict(result)) if not entry.is_text}
    given = members(told)
    sides = [_side(name, title, given[name], reports.get(name)) for name, title in titles.items() if name in given]
    reason = None if told.get("status") == MEASURED else str(told.get("reason") or "no reason was given")
    by = ", ".join(str(part) for part in (told.get("profiler"), told.get("level")) if part)
    return Counters(reason, by, [side for side in sides if reason is None or side.rows])


def _side(name: str, title: str, side: Told, report: Entry | None) -> Side:
    kernels = objects(side.get("kernels"))
    omitted = side.get("kernels_omitted")
    reason = words.sentence(str(side["reason"])) if side.get("reason") else None
    if side.get("status") != MEASURED:
        reason = f"Not available: {side.get('reason') or 'no reason was given'}"
    advice = [
        (str(each.get("kernel") or words.NONE), str(each.get("message") or ""), _figures(each.get("figures")))
        for each in objects(side.get("advice"))
    ]
    more = max(0, len(kernels) - SHOWN) + (omitted if isinstance(omitted, int) else 0)
    return Side(name, title, reason, [_row(each) for each in kernels[:SHOWN]], more, advice, report)


def _row(kernel: Told) -> Row:
    speed, memory, held = (obj(kernel.get(name)) for name in ("speed_of_light", "memory", "occupancy"))
    launches, time = kernel.get("launches"), kernel.get("time_us")
    occupancy = percent(held.get("achieved_percent"))
    if held.get("theoretical_percent") is not None:
        occupancy += f" of {percent(held['theoretical_percent'])}"
    if held.get("limited_by") and (_number(held.get("theoretical_percent")) or 0.0) < FULL:
        occupancy += f", limited by {words.name(held['limited_by'])}"
    often = f", {words.counted(launches, 'launch', 'launches')}" if isinstance(launches, int) else ""
    stalls = [
        f"{words.name(each.get('reason'))} {percent(each.get('percent'))}" for each in objects(kernel.get("stalls"))
    ]
    requested_metrics = [
        (str(name), f"{words.figure(one.get('value'), 6)} {one.get('unit') or ''}".rstrip())
        for name, one in members(kernel.get("requested_metrics")).items()
    ]
    return Row(
        name=str(kernel.get("name") or words.NONE),
        time=f"{_close(words.duration(_milliseconds(time)))}, {percent_of(kernel.get('share'))}{often}",
        sm=_number(speed.get("sm_percent")),
        memory=_number(speed.get("memory_percent")),
        dram=f"{percent(memory.get('dram_percent'))}{_rate(memory.get('dram_bytes_per_s'))}",
        hits=f"{percent(memory.get('l1_hit_percent'))}, {percent(memory.get('l2_hit_percent'))}",
        occupancy=occupancy,
        tensor=percent(kernel.get("tensor_percent")),
        roofline=_roofline(obj(kernel.get("roofline"))),
        stalls=", ".join(stalls[:STALLS]) or words.NONE,
        requested_metrics=requested_metrics,
    )


def _roofline(point: Told) -> str:
    """The point by what was counted, and what is nearest to its peak there."""
    if _number(point.get("flops_per_s")) is None:
        return words.NONE
    at = f", {_close(words.figure(point.get('flops_per_byte')))} a byte" if point.get("flops_per_byte") else ""
    bound = f", {point['bound']}" if point.get("bound") else ""
    return f"{_close(words.flops_per_s(point['flops_per_s']))}{at}{bound}"


def percent(value: Any) -> str:
    """Per cent, from 0 to 100."""
    return percent_of(value / 100) if isinstance(value, int | float) else words.NONE


def percent_of(part: Any) -> str:
    """A part of one."""
    return _close(words.share(part))


def _rate(bytes_per_s: Any) -> str:
    return f", {_close(words.size(bytes_per_s))}/s" if _number(bytes_per_s) is not None else ""


def _close(figure: str) -> str:
    """With its unit on the same line."""
    return figure.replace(" ", "\u00a0")


def _figures(figures: Any) -> str:
    return ", ".join(f"{words.name(name)} {_value(value)}" for name, value in obj(figures).items())


def _value(value: Any) -> str:
    return words.figure(value) if isinstance(value, int | float) else str(value)


def _milliseconds(us: Any) -> float | None:
    return us / 1e3 if isinstance(us, int | float) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
