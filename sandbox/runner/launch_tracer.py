"""Traces what a kernel's calls launch, with torch's profiler in the runner: UNTRUSTED, for information only."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import DeviceType, ProfilerActivity, profile

from backends.base import Target
from sandbox.protocol.channel import Message
from sandbox.protocol.launch_trace import CPU_OPERATORS, CUPTI, MAX_KERNELS, MAX_NAME

CALLS = 2
SPIN_CYCLES = 20_000_000
"""About 10 ms on an H200: enough time to queue the calls behind it."""
SPIN = "spin_kernel"
"""The kernel that `torch.cuda._sleep` launches; it marks the beginning and end of the calls on their stream."""
WAITS = frozenset({"Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event", "Unknown"})
"""CUPTI's records of synchronisation: they are on the device's time line but run nothing."""
TICK_US = 1.0
"""Maximum overlap of ordered kernels in the trace, in µs."""


class NoTrace(Exception):
    """The profiler recorded nothing usable."""


def trace_launches(call: Callable[[], object], target: Target) -> Message:
    """Traces two warm calls, for `sandbox.protocol.launch_trace`; raises NoTrace if the profiler sees
    nothing.

    On a GPU, the calls are queued between a kernel that spins for a while and another one. Work on further streams that
    does not wait for them then shows, however short it is.
    """
    activity = ProfilerActivity.CUDA if target.is_cuda else ProfilerActivity.CPU
    with _quiet(), profile(activities=[activity], acc_events=True) as profiler:
        if target.is_cuda:
            _spin(SPIN_CYCLES)
        for _ in range(CALLS):
            call()
        if target.is_cuda:
            _spin(1)
            torch.cuda.synchronize()
    events = list(profiler.events())
    return device_trace(events) if target.is_cuda else _on_host(events)


def _spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _on_host(events: list[Any]) -> Message:
    return _trace_message(CPU_OPERATORS, [(event.name, float(event.self_cpu_time_total)) for event in events])


def device_trace(events: list[Any]) -> Message:
    """The trace of the work on the GPU but for the two markers, from torch's events. Raises NoTrace without markers."""
    device_events = [event for event in events if event.device_type == DeviceType.CUDA and _is_work(event)]
    spins = sorted((event for event in device_events if SPIN in event.name), key=lambda event: event.time_range.start)
    spins = [event for event in spins if event.device_resource_id == spins[0].device_resource_id]
    if len(spins) < 2:
        raise NoTrace("the profiler recorded nothing on the GPU: CUPTI is missing, not permitted, or in other hands")
    first, last = spins[0], spins[-1]
    work = [event for event in device_events if event is not first and event is not last]
    elsewhere = [event for event in work if event.device_resource_id != first.device_resource_id]
    begin, end = first.time_range.end - TICK_US, last.time_range.start + TICK_US
    stray = [event for event in elsewhere if event.time_range.start < begin or event.time_range.end > end]
    return {
        **_trace_message(CUPTI, [(event.name, _duration_us(event)) for event in work]),
        "streams": len({event.device_resource_id for event in work}),
        "stray_us": sum(map(_duration_us, stray)),
    }


def _is_work(event: Any) -> bool:
    return event.name not in WAITS and not getattr(event, "is_user_annotation", False)


def _trace_message(source: str, work: list[tuple[str, float]]) -> Message:
    launches: dict[str, int] = defaultdict(int)
    time_us: dict[str, float] = defaultdict(float)
    for name, duration in work:
        launches[name] += 1
        time_us[name] += duration
    longest = sorted(launches, key=lambda name: -time_us[name])[:MAX_KERNELS]
    return {
        "op": "trace",
        "source": source,
        "calls": CALLS,
        "kernels": [{"name": n[:MAX_NAME], "launches": launches[n], "time_us": time_us[n]} for n in longest],
        "launches": len(work),
        "time_us": sum(time_us.values()),
        "distinct": len(launches),
    }


def _duration_us(event: Any) -> float:
    return float(event.time_range.end - event.time_range.start)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses output meanwhile: the profiler's messages would mix with the submission's."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(saved, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
