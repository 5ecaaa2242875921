"""Timestamps on the clock of the kernel: CUDA events on a device, the host's clock elsewhere. Advisory."""

from __future__ import annotations

import time
from typing import Any

from backends.base import Target


def record_event(target: Target) -> Any:
    """A timestamp: an event recorded on the current stream, or nanoseconds of the host."""
    if not target.is_cuda:
        return time.perf_counter_ns()
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def milliseconds(start: Any, end: Any) -> float:
    """Time between two timestamps, in ms; waits until the device has reached the second."""
    if isinstance(start, int):
        return float(end - start) / 1e6
    end.synchronize()
    return float(start.elapsed_time(end))
