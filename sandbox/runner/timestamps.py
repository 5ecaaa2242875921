"""Moments on the clock that a kernel runs by: CUDA events on the device, the host's clock elsewhere. Advisory."""

from __future__ import annotations

import time
from typing import Any

from backends.base import Target


def mark(target: Target) -> Any:
    """Now: an event recorded on the current stream, or nanoseconds."""
    if not target.is_cuda:
        return time.perf_counter_ns()
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def milliseconds(start: Any, end: Any) -> float:
    """Between two marks; waits for the second if the device has not reached it."""
    if isinstance(start, int):
        return float(end - start) / 1e6
    end.synchronize()
    return float(start.elapsed_time(end))
