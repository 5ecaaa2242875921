"""How many calls of a kernel can be queued on the device ahead of the starting gun: found out by rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiling.device import Device
from profiling.plan import QUEUE, calls_that_fill, calls_that_queue
from profiling.record import LEAST_LAUNCH_MS
from profiling.window import GateClosed
from tasks.contender import Contender

RETREAT = 4
ADVANCE = 1.5
"""So many times as many calls are worth another rehearsal."""
LAUNCHING_MS = 0.02
"""A probe that says less has timed a host that launches: a call may well take half of that behind the gate."""
OWN_MS = 0.3
"""Of what a rehearsal takes so much is the window's own, though never more than half (docs/measurements.md)."""
LEAST_MS = 0.3
"""A window of calls that take less together, as a rehearsal tells it, begins up to 25 µs sooner or later: too much."""
ARM_S, ARM_FACTOR = 0.25, 4.0
"""Queueing K calls should take about as long as running them; past a multiple of that they wait for the device."""
HELD_UP = (
    "timed without the gate: queued behind it, its work (on several streams, say) keeps the device from others, whose "
    "copies would count as its time"
)


@dataclass(frozen=True)
class Rehearsal:
    """So many calls fit behind the gate, and each took about so long there."""

    calls: int
    call_ms: float


def rehearse(
    contender: Contender, example: list[Any], limit: int, device: Device, *, window: float = 1.0
) -> Rehearsal | None:
    """Windows that are thrown away; they also make the libraries take the memory that the real ones need.

    They are `window` times as long as usual.

    None where not even one call can be queued: on the host, and for a kernel that waits for the device. Nor are calls
    queued of which only so few can be, by whatever the kernel does, that a window of them tells too little: launched on
    the clock, nobody gains by having them kept few.
    """
    if not device.is_cuda or contender.probe is None:
        return None
    found = _rehearsed(contender, example, limit, device, window)
    kept_few = found is not None and found.calls < limit and found.calls * found.call_ms < LEAST_MS
    return None if kept_few else found


def _rehearsed(contender: Contender, example: list[Any], limit: int, device: Device, window: float) -> Rehearsal | None:
    calls = _enough(contender, contender.estimate_ms, limit, window)
    if contender.estimate_ms < LAUNCHING_MS:
        calls = min(int(ADVANCE * calls), _most(contender, contender.estimate_ms, limit))
    if (tried := _try(contender, example, calls, device)) is not None:
        # A probe's estimate is mostly the host's time to launch: behind the gate a call may be far shorter.
        enough = _enough(contender, tried.call_ms, limit, window)
        return (_try(contender, example, enough, device) or tried) if enough > ADVANCE * calls else tried
    fewest = _try(contender, example, 1, device)
    while fewest is not None and (calls := calls // RETREAT) > 1:
        if (tried := _try(contender, example, calls, device)) is not None:
            return tried
    return fewest


def _most(contender: Contender, call_ms: float, limit: int) -> int:
    """Calls of such a time that can be queued: by the launches that are said to be in each, as far as these fit in."""
    said = contender.probe.entries if contender.probe is not None else None
    return min(limit, calls_that_queue(None if said is None else min(said, 1 + call_ms / LEAST_LAUNCH_MS)))


def _enough(contender: Contender, call_ms: float, limit: int, window: float) -> int:
    """As many of them as fill a window."""
    return calls_that_fill(call_ms, _most(contender, call_ms, limit), is_cuda=True, window=window)


def calls_with_marks(contender: Contender, calls: int) -> int:
    """Of so many calls that can be queued, how many can be with a mark behind each: all, or half of them."""
    entries = contender.probe.entries if contender.probe is not None else None
    return calls if entries is not None and calls * (entries + 1) <= QUEUE else max(calls // 2, 1)


def _try(contender: Contender, example: list[Any], calls: int, device: Device) -> Rehearsal | None:
    if contender.probe is None or contender.range is None:
        raise ValueError(f"the {contender.role} is not ready")
    slots = contender.slots(calls, example, device.name)
    slots.fill_alike(example)
    within = ARM_S + ARM_FACTOR * calls * contender.estimate_ms / 1e3
    try:
        with contender.answerable():
            window = contender.range.window(slots, gated=True, arm_within=within)
    except GateClosed:
        return None
    return Rehearsal(calls, max(window.elapsed_ms - OWN_MS, window.elapsed_ms / 2) / calls)
