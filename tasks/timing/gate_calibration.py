"""Finds how many calls of a kernel can be queued behind the gate, by untimed windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profiling.gpu.timing_device import Device
from profiling.integrity.single_call import LEAST_LAUNCH_MS
from profiling.stats.stopping_rule import calls_that_fill, calls_that_queue, coarse
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import GateClosed
from tasks.runtime.kernel_run import KernelRun

SHRINK = 4
"""Divisor of the number of calls after a window that could not be queued."""
GROW = 1.5
"""Minimum factor between two numbers of calls for another calibration window."""
MOST_TRIES = 4
LAUNCHING_MS = 0.02
"""Estimate below which a probe has timed the host's launches, in ms: behind the gate a call may take half of that."""
OVERHEAD_MS = 0.3
"""Fixed overhead of a calibration window, in ms; at most half of its time is subtracted (docs/measurements.md)."""
ARM_S, ARM_FACTOR = 0.25, 4.0
"""Maximum time to queue the calls, in s, and as a multiple of their running time. Calls that take longer are taken to
wait for the device."""
AGAIN_S = 1.0
"""The same for the last try of one call, in s. While contexts are made on any card, 66 ms each, the driver has all else
wait. A kernel that is then taken to wait itself reads 25 µs instead of 13 (docs/measurements.md)."""
HELD_UP = (
    "timed without the gate: queued behind it, its work (on several streams, say) keeps the device from others, whose "
    "copies would count as its time"
)


@dataclass(frozen=True)
class Calibration:
    """The number of calls that fit behind the gate with an event after each, and the time of one, in ms."""

    calls: int
    call_ms: float


SlotsOf = Callable[[KernelRun, int], Slots]
"""Makes a layout of so many calls of that kernel, all filled with inputs."""


def calibrate(
    kernel_run: KernelRun, slots_of: SlotsOf, limit: int, device: Device, *, window: float = 1.0
) -> Calibration | None:
    """Runs windows that do not count; they also make libraries allocate the memory that timed windows need.

    The windows are `window` times the usual length and hold at most `limit` calls. None if not even one call can be
    queued: on the host, or for a kernel that waits for the device.
    """
    if not device.is_cuda or kernel_run.probe is None:
        return None
    calls = _enough(kernel_run, kernel_run.estimate_ms, limit, window)
    if kernel_run.estimate_ms < LAUNCHING_MS:
        calls = min(coarse(int(GROW * calls)), _most(kernel_run, kernel_run.estimate_ms, limit))
    result: Calibration | None = None
    for _ in range(MOST_TRIES):
        if (attempt := _try(kernel_run, slots_of, calls)) is None:
            return _shrink(kernel_run, slots_of, calls, result)
        # A probe's estimate is mostly the host's launch time: behind the gate a call may be far shorter.
        result, enough = attempt, _enough(kernel_run, attempt.call_ms, limit, window)
        if enough <= GROW * calls:
            break
        calls = enough
    return result


def _shrink(kernel_run: KernelRun, slots_of: SlotsOf, calls: int, fewest: Calibration | None) -> Calibration | None:
    """The calibration with the most calls, below `calls`, that can be queued; `fewest` is one that could.

    Where only the last try of one call could, the host was busy, and `calls` are tried again.
    """
    if fewest is None and (fewest := _try(kernel_run, slots_of, 1)) is None:
        fewest, calls = _try(kernel_run, slots_of, 1, AGAIN_S), calls * SHRINK
    while fewest is not None and (calls := calls // SHRINK) > fewest.calls:
        if (attempt := _try(kernel_run, slots_of, calls)) is not None:
            return attempt
    return fewest


def _most(kernel_run: KernelRun, call_ms: float, limit: int) -> int:
    """Maximum number of calls in the queue: by the runner's count of launches, capped by what fits into `call_ms`."""
    entries = kernel_run.probe.entries if kernel_run.probe is not None else None
    return limit if entries is None else min(limit, calls_that_queue(min(entries, 1 + call_ms / LEAST_LAUNCH_MS)))


def _enough(kernel_run: KernelRun, call_ms: float, limit: int, window: float) -> int:
    """Number of calls that fill a window."""
    return calls_that_fill(call_ms, _most(kernel_run, call_ms, limit), is_cuda=True, window=window)


def _try(kernel_run: KernelRun, slots_of: SlotsOf, calls: int, arm_s: float = ARM_S) -> Calibration | None:
    if kernel_run.probe is None or kernel_run.window_session is None:
        raise ValueError(f"the {kernel_run.role} is not ready")
    slots = slots_of(kernel_run, calls)
    within = arm_s + ARM_FACTOR * calls * kernel_run.estimate_ms / 1e3
    try:
        with kernel_run.attribute_faults():
            window = kernel_run.window_session.window(
                slots, gated=True, with_events=True, read=False, arm_within=within
            )
    except GateClosed:
        return None
    return Calibration(calls, max(window.elapsed_ms - OVERHEAD_MS, window.elapsed_ms / 2) / calls)
