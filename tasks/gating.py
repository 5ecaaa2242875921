"""How many calls of a kernel can be queued on the device ahead of the starting gun: found out by rehearsal."""

from __future__ import annotations

from typing import Any

from profiling.device import Device
from profiling.window import GateClosed
from tasks.contender import Contender

RETREAT = 4
ARM_S, ARM_FACTOR = 0.25, 4.0
"""Queueing K calls should take about as long as running them; past a multiple of that they wait for the device."""


def gated_calls(contender: Contender, example: list[Any], calls: int, device: Device) -> int | None:
    """`calls`, or fewer when they launch more than the queue holds; None when not even one call can be queued.

    That is so on the host, and for a kernel that waits for the device in the middle of a call.
    """
    if not device.is_cuda:
        return None
    if _arms(contender, example, calls, device):
        return calls
    if not _arms(contender, example, 1, device):
        return None
    while (calls := calls // RETREAT) > 1:
        if _arms(contender, example, calls, device):
            return calls
    return 1


def _arms(contender: Contender, example: list[Any], calls: int, device: Device) -> bool:
    """One window, thrown away: it also makes the libraries take the memory that the real ones need."""
    if contender.probe is None or contender.range is None:
        raise ValueError(f"the {contender.role} is not ready")
    slots = contender.slots(calls, example, device.name)
    for call in range(calls):
        slots.fill(call, example)
    within = ARM_S + ARM_FACTOR * calls * contender.probe.estimate_ms / 1e3
    try:
        with contender.answerable():
            contender.range.window(slots, gated=True, marked=True, arm_within=within)
    except GateClosed:
        return False
    return True
