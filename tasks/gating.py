"""How many calls of a kernel can be queued on the device ahead of the starting gun: found out by rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiling.device import Device
from profiling.plan import QUEUE, UNCOUNTED, calls_that_fill, calls_that_queue
from profiling.record import LEAST_LAUNCH_MS
from profiling.window import GateClosed
from tasks.contender import Contender

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
    """So many calls fit behind the gate, and each took about so long there. `marked`: with a mark behind each."""

    calls: int
    call_ms: float
    marked: bool = True

    def with_marks(self, calls: int) -> int:
        """Of no more calls than were rehearsed, how many can be queued with a mark behind each.

        Where all fit without, half of them do with: a mark takes no more of the queue than a call.
        """
        return calls if self.marked else max(calls // 2, 1)


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
        calls = min(int(ADVANCE * calls), _most(contender, contender.estimate_ms, limit))
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
    """Calls of such a time that can be queued: by the launches that are said to be in each, as far as these fit in.

    With a mark behind each, but for those of one launch, of which there would be half as many.
    """
    said = contender.probe.entries if contender.probe is not None else None
    if said is None:
        return min(limit, UNCOUNTED)
    entries = min(said, 1 + call_ms / LEAST_LAUNCH_MS)
    return min(limit, calls_that_queue(entries if _is_short(contender) else entries + 1))


def _enough(contender: Contender, call_ms: float, limit: int, window: float) -> int:
    """As many of them as fill a window."""
    return calls_that_fill(call_ms, _most(contender, call_ms, limit), is_cuda=True, window=window)


def _is_short(contender: Contender) -> bool:
    launches = contender.probe.launches if contender.probe is not None else None
    return launches is not None and launches <= 1


def _marks_fit(contender: Contender, calls: int) -> bool:
    """Whether a mark behind each of so many calls is worth trying: of short calls it may be sure not to be."""
    said = contender.probe.entries if contender.probe is not None else None
    return said is None or not _is_short(contender) or calls * (said + 1) <= QUEUE


def _try(contender: Contender, example: list[Any], calls: int, device: Device) -> Rehearsal | None:
    if contender.probe is None or contender.range is None:
        raise ValueError(f"the {contender.role} is not ready")
    slots = contender.slots(calls, example, device.name)
    slots.fill_alike(example)
    within, marked = ARM_S + ARM_FACTOR * calls * contender.estimate_ms / 1e3, _marks_fit(contender, calls)
    try:
        with contender.answerable():
            window = contender.range.window(slots, gated=True, marked=marked, arm_within=within)
    except GateClosed:
        return None
    return Rehearsal(calls, max(window.elapsed_ms - OWN_MS, window.elapsed_ms / 2) / calls, marked)
