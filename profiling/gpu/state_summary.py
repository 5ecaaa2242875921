"""Summarises a card's samples over a job's windows, and decides which windows throttling has spoiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiling.gpu.monitor import CardProcess, CardSample, CardUnavailable

Reading = CardSample | CardUnavailable

SPOILING = {
    "hw_slowdown": "the card's hardware slowed its clocks down",
    "hw_thermal_slowdown": "the card was too hot and its hardware slowed its clocks down",
    "hw_power_brake_slowdown": "the machine's power supply slowed the card's clocks down (power brake)",
    "sw_thermal_slowdown": "the card was too hot and its driver slowed its clocks down",
    "thermal_limit": "the card's clocks were lowered because of its temperature",
}
"""Throttle reasons that spoil a window, with their explanation, most general first: they come from the machine room.

The power cap is not among them: a large matrix product reaches it on a healthy card every time. Nor is an idle card's
low clock between windows. Both are reported. """


@dataclass(frozen=True)
class Span:
    """Lowest and highest reading of a figure."""

    min: float
    max: float


@dataclass(frozen=True)
class CardState:
    """The card over a job's windows. `unavailable` says why nothing is known; a None is a figure the card lacks.

    `throttled_ms` is for how long the clocks were lowered between the first and the last thorough sample, by reason.
    `other_processes` are those on the card that are not ours; None when the driver's list cannot be read from here.
    """

    samples: int = 0
    unavailable: str | None = None
    sm_clock_mhz: Span | None = None
    max_sm_clock_mhz: int | None = None
    memory_clock_mhz: Span | None = None
    max_memory_clock_mhz: int | None = None
    temperature_c: Span | None = None
    power_w: Span | None = None
    power_limit_w: float | None = None
    memory_used_bytes: Span | None = None
    throttle_reasons: list[str] = field(default_factory=list)
    throttled_ms: dict[str, float] = field(default_factory=dict)
    new_ecc_errors: int | None = None
    other_processes: list[CardProcess] | None = None


def card_state(readings: Sequence[Reading], own: Collection[int] = (), others: Collection[int] = ()) -> CardState:
    """Summarises samples; `own` are the pids of this service, `others` those of other programs.

    A pid in neither set is not reported. `dataclasses.asdict` of the state is JSON-ready.
    """
    samples = [reading for reading in readings if isinstance(reading, CardSample)]
    if not samples:
        refused = [reading.reason for reading in readings if isinstance(reading, CardUnavailable)]
        return CardState(unavailable=refused[0] if refused else "the card was never sampled")
    first, last = samples[0], samples[-1]
    totals = [sample for sample in samples if sample.lowered_ns] or [first]
    return CardState(
        samples=len(samples),
        sm_clock_mhz=_span([sample.sm_clock_mhz for sample in samples]),
        max_sm_clock_mhz=last.max_sm_clock_mhz,
        memory_clock_mhz=_span([sample.memory_clock_mhz for sample in samples]),
        max_memory_clock_mhz=last.max_memory_clock_mhz,
        temperature_c=_span([sample.temperature_c for sample in samples]),
        power_w=_span([sample.power_w for sample in samples]),
        power_limit_w=last.power_limit_w,
        memory_used_bytes=_span([sample.memory_used_bytes for sample in samples]),
        throttle_reasons=sorted({reason for sample in samples for reason in sample.reasons or ()}),
        throttled_ms={name: ns / 1e6 for name, ns in _lowered_ns(totals[-1], totals[0]).items() if ns > 0},
        new_ecc_errors=_difference(first.ecc_uncorrected, last.ecc_uncorrected),
        other_processes=_others(samples, own, others),
    )


def joined(states: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """One state for several runs of windows, each as `dataclasses.asdict`; None for none."""
    available = [state for state in states if state["unavailable"] is None]
    if not available:
        return states[0] if states else None
    state_of_all = dict(available[-1])
    for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "memory_used_bytes"):
        spans = [state[name] for state in available if state[name] is not None]
        lows, highs = ([span[end] for span in spans] for end in ("min", "max"))
        state_of_all[name] = {"min": min(lows), "max": max(highs)} if spans else None
    lowered = [reason for state in available for reason in state["throttled_ms"]]
    errors = [state["new_ecc_errors"] for state in available]
    others = [state["other_processes"] for state in available]
    by_pid = {process["pid"]: process for listed in others if listed is not None for process in listed}
    return state_of_all | {
        "samples": sum(state["samples"] for state in available),
        "throttle_reasons": sorted({reason for state in available for reason in state["throttle_reasons"]}),
        "throttled_ms": {
            reason: sum(state["throttled_ms"].get(reason, 0.0) for state in available)
            for reason in dict.fromkeys(lowered)
        },
        "new_ecc_errors": None if None in errors else sum(errors),
        "other_processes": None if None in others else list(by_pid.values()),
    }


def throttled(after: Reading) -> str | None:
    """Why the window that ended with `after` must be repeated, in words with the reason's name; None if it is good."""
    if isinstance(after, CardUnavailable):
        return None
    spoiling = [name for name in SPOILING if name in (after.reasons or ())]
    if not spoiling:
        return None
    # Use the more specific reason if there is one: a hot card sets the general bit as well.
    telling = [name for name in spoiling if name not in ("hw_slowdown", "thermal_limit")] or spoiling
    return f"{SPOILING[telling[0]]} ({', '.join(spoiling)}{_where(after)})"


def _where(sample: CardSample) -> str:
    parts = []
    if sample.sm_clock_mhz is not None and sample.max_sm_clock_mhz:
        parts.append(f"at {sample.sm_clock_mhz} of {sample.max_sm_clock_mhz} MHz")
    if sample.temperature_c is not None:
        parts.append(f"at {sample.temperature_c} °C")
    return "".join(f", {part}" for part in parts)


def _lowered_ns(after: CardSample, before: CardSample) -> dict[str, int]:
    return {name: ns - before.lowered_ns[name] for name, ns in after.lowered_ns.items() if name in before.lowered_ns}


def _span(figures: Sequence[float | None]) -> Span | None:
    values = [value for value in figures if value is not None]
    return Span(min(values), max(values)) if values else None


def _difference(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


def processes(readings: Sequence[Reading]) -> dict[int, CardProcess]:
    """The last reading of every process that was on the card, by pid."""
    lists = [reading.processes or () for reading in readings if isinstance(reading, CardSample)]
    return {process.pid: process for listed in lists for process in listed}


def _others(samples: list[CardSample], own: Collection[int], others: Collection[int]) -> list[CardProcess] | None:
    """Processes of other programs; None if the driver's list is of no use here.

    The sampling process holds a context on the card. A list without any of this service's pids therefore has the pids
    of another namespace.
    """
    latest = processes(samples)
    if not latest or not set(latest) & set(own):
        return None
    return [process for pid, process in sorted(latest.items()) if pid in others]
