"""The hardware counters of each kernel, in words. The submission's own processes supply them, so they prove nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import words
from api.pages.typed_members import JsonObject, members, object_or_empty, objects_in_list
from domain.result import CANDIDATE, REFERENCE
from tasks.jobs.artifact_store import Entry, entries

MEASURED = "measured"
FULL = 99.5
"""Occupancy in per cent from which on nothing limits it."""
MAX_KERNELS, STALLS = 12, 3
"""Maximum kernels of a side, and stall reasons of a kernel, on the page."""


@dataclass(frozen=True)
class KernelRow:
    """One kernel in words. `sm` and `memory` are per cent of their peak, for the bars; None where unknown."""

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

    `reason` says why there are none, or which are omitted; `report` is the profiler's own report, or why it is
    unavailable.
    """

    side: str
    title: str
    reason: str | None
    rows: list[KernelRow]
    more: int
    advice: list[tuple[str, str, str]]
    report: Entry | None


@dataclass(frozen=True)
class Counters:
    """Both sides; `reason` says why there are no counters, `by` which tool read them."""

    reason: str | None
    by: str
    sides: list[Side]


def counters(result: JsonObject) -> Counters | None:
    """The counters in a result; None where the request did not ask for them."""
    metrics = (result["kernel_exec_result"].get("metadata") or {}).get("device_metrics")
    if not isinstance(metrics, Mapping):
        return None
    titles = {CANDIDATE: CANDIDATE if result.get("ref_result") else "kernel", REFERENCE: REFERENCE}
    reports = {entry.side: entry for entry in entries(dict(result)) if not entry.is_text}
    by_side = members(metrics)
    sides = [
        _kernel_run_counters(name, title, by_side[name], reports.get(name))
        for name, title in titles.items()
        if name in by_side
    ]
    reason = None if metrics.get("status") == MEASURED else str(metrics.get("reason") or "no reason was given")
    by = ", ".join(str(part) for part in (metrics.get("profiler"), metrics.get("level")) if part)
    return Counters(reason, by, [side for side in sides if reason is None or side.rows])


def _kernel_run_counters(name: str, title: str, side: JsonObject, report: Entry | None) -> Side:
    kernels = objects_in_list(side.get("kernels"))
    omitted_count = side.get("kernels_omitted")
    reason = words.sentence(str(side["reason"])) if side.get("reason") else None
    if side.get("status") != MEASURED:
        reason = f"Not available: {side.get('reason') or 'no reason was given'}"
    advice = [
        (str(item.get("kernel") or words.NONE), str(item.get("message") or ""), _figures(item.get("figures")))
        for item in objects_in_list(side.get("advice"))
    ]
    more = max(0, len(kernels) - MAX_KERNELS) + (omitted_count if isinstance(omitted_count, int) else 0)
    return Side(name, title, reason, [_row(item) for item in kernels[:MAX_KERNELS]], more, advice, report)


def _row(kernel: JsonObject) -> KernelRow:
    speed, memory, held = (object_or_empty(kernel.get(name)) for name in ("speed_of_light", "memory", "occupancy"))
    launches, time = kernel.get("launches"), kernel.get("time_us")
    occupancy = percent(held.get("achieved_percent"))
    if held.get("theoretical_percent") is not None:
        occupancy += f" of {percent(held['theoretical_percent'])}"
    if held.get("limited_by") and (_number(held.get("theoretical_percent")) or 0.0) < FULL:
        occupancy += f", limited by {words.name(held['limited_by'])}"
    often = f", {words.counted(launches, 'launch', 'launches')}" if isinstance(launches, int) else ""
    stalls = [
        f"{words.name(each.get('reason'))} {percent(each.get('percent'))}"
        for each in objects_in_list(kernel.get("stalls"))
    ]
    requested_metrics = [
        (str(name), f"{words.figure(one.get('value'), 6)} {one.get('unit') or ''}".rstrip())
        for name, one in members(kernel.get("requested_metrics")).items()
    ]
    return KernelRow(
        name=str(kernel.get("name") or words.NONE),
        time=f"{_close(words.microseconds(time))}, {percent_of(kernel.get('share'))}{often}",
        sm=_number(speed.get("sm_percent")),
        memory=_number(speed.get("memory_percent")),
        dram=f"{percent(memory.get('dram_percent'))}{_rate(memory.get('dram_bytes_per_s'))}",
        hits=f"{percent(memory.get('l1_hit_percent'))}, {percent(memory.get('l2_hit_percent'))}",
        occupancy=occupancy,
        tensor=percent(kernel.get("tensor_percent")),
        roofline=_roofline(object_or_empty(kernel.get("roofline"))),
        stalls=", ".join(stalls[:STALLS]) or words.NONE,
        requested_metrics=requested_metrics,
    )


def _roofline(point: JsonObject) -> str:
    """The measured point of the roofline, and the peak that is nearest."""
    if _number(point.get("flops_per_s")) is None:
        return words.NONE
    at = f", {_close(words.figure(point.get('flops_per_byte')))} a byte" if point.get("flops_per_byte") else ""
    bound = f", {point['bound']}" if point.get("bound") else ""
    return f"{_close(words.flops_per_s(point['flops_per_s']))}{at}{bound}"


def percent(value: Any) -> str:
    """A value in per cent, from 0 to 100."""
    return percent_of(value / 100) if isinstance(value, int | float) else words.NONE


def percent_of(part: Any) -> str:
    """A part of one, in per cent."""
    return _close(words.share(part))


def _rate(bytes_per_s: Any) -> str:
    return f", {_close(words.size(bytes_per_s))}/s" if _number(bytes_per_s) is not None else ""


def _close(figure: str) -> str:
    """Keeps a figure and its unit on one line."""
    return figure.replace(" ", "\u00a0")


def _figures(figures: Any) -> str:
    return ", ".join(f"{words.name(name)} {_value(value)}" for name, value in object_or_empty(figures).items())


def _value(value: Any) -> str:
    return words.figure(value) if isinstance(value, int | float) else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
