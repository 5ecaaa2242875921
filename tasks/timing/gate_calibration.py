"""How many calls of a kernel can be queued on the device ahead of the starting gun: found out by rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiling.gpu.timing_device import Device
from profiling.integrity.single_call import LEAST_LAUNCH_MS
from profiling.stats.stopping_rule import calls_that_fill, calls_that_queue, coarse
from profiling.window.timed_window import GateClosed
from tasks.runtime.kernel_run import Contender

RETREAT = 4
ADVANCE = 1.5
"""So many times as many calls are worth another rehearsal."""
MOST_TRIES = 4
LAUNCHING_MS = 0.02
"""A probe that says less has timed a host that launches: a call may well take half of that behind the gate."""
OWN_MS = 0.3
"""Of what a rehearsal takes so much is the window's own, though never more than half (docs/measurements.md)."""
ARM_S, ARM_FACTOR = 0.25, 4.0
"""Queueing K calls should take about as long as running them; past a multiple of that they wait for the device."""
HELD_UP = (
    "timed without the gate: queued behind it, its work (on several streams, say) keeps the device from others, whose "
    "copies would count as its time"
)


@dataclass(frozen=True)
class Rehearsal:
    """So many calls fit behind the gate with a mark behind each, and each took about so long there."""

    calls: int
    call_ms: float


def rehearse(
    contender: Contender, example: list[Any], limit: int, device: Device, *, window: float = 1.0
) -> Rehearsal | None:
    """Windows that are thrown away; they also make the libraries take the memory that the real ones need.

    They are `window` times as long as usual, and hold no more calls than `limit`.

    None where not even one call can be queued: on the host, and for a kernel that waits for the device.
    """
    if not device.is_cuda or contender.probe is None:
        return None
    calls = _enough(contender, contender.estimate_ms, limit, window)
    if contender.estimate_ms < LAUNCHING_MS:
        calls = min(coarse(int(ADVANCE * calls)), _most(contender, contender.estimate_ms, limit))
    found: Rehearsal | None = None
    for _ in range(MOST_TRIES):
        if (tried := _try(contender, example, calls, device)) is None:
            return _retreat(contender, example, calls, device, found)
        # A probe's estimate is mostly the host's time to launch: behind the gate a call may be far shorter.
        found, enough = tried, _enough(contender, tried.call_ms, limit, window)
        if enough <= ADVANCE * calls:
            break
        calls = enough
    return found


def _retreat(
    contender: Contender, example: list[Any], calls: int, device: Device, fewest: Rehearsal | None
) -> Rehearsal | None:
    """Of fewer calls than those that cannot be queued, but more than the fewest that can, or else that."""
    fewest = fewest or _try(contender, example, 1, device)
    while fewest is not None and (calls := calls // RETREAT) > fewest.calls:
        if (tried := _try(contender, example, calls, device)) is not None:
            return tried
    return fewest


def _most(contender: Contender, call_ms: float, limit: int) -> int:
    """Calls of such a time that can be queued: by the launches that are said to be in each, as far as these fit in."""
    said = contender.probe.entries if contender.probe is not None else None
    return limit if said is None else min(limit, calls_that_queue(min(said, 1 + call_ms / LEAST_LAUNCH_MS)))


def _enough(contender: Contender, call_ms: float, limit: int, window: float) -> int:
    """As many of them as fill a window."""
    return calls_that_fill(call_ms, _most(contender, call_ms, limit), is_cuda=True, window=window)


def _try(contender: Contender, example: list[Any], calls: int, device: Device) -> Rehearsal | None:
    if contender.probe is None or contender.range is None:
        raise ValueError(f"the {contender.role} is not ready")
    slots = contender.slots(calls, example, device.name)
    slots.fill_alike(example)
    within = ARM_S + ARM_FACTOR * calls * contender.estimate_ms / 1e3
    try:
        with contender.answerable():
            window = contender.range.window(slots, gated=True, marked=True, read=False, arm_within=within)
    except GateClosed:
        return None
    return Rehearsal(calls, max(window.elapsed_ms - OWN_MS, window.elapsed_ms / 2) / calls)
