"""Windows of a kernel with chosen times, and the timing that they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from domain.result import Timing
from profiling.integrity.disagreement import CheckWindows
from profiling.results.estimate import estimate
from profiling.results.samples import KernelWindows, Samples, WindowSetup
from profiling.results.timing import Circumstances, render_timing
from profiling.window.timed_window import Window


def window(elapsed_ms: float, call_ms: Sequence[float] = (), *, setup_ms: float = 0.1) -> Window:
    """A window without outputs."""
    return Window(elapsed_ms, list(call_ms), torch.empty(0), None, setup_ms)


def kernel_windows(
    calls: int, *, is_cuda: bool = True, gated: bool = True, readback_calls: int | None = None, **setup: Any
) -> KernelWindows:
    """No windows yet: `calls` in each usual one, and as many in one with deferred readback."""
    samples = Samples(WindowSetup(calls, is_cuda, gated, **setup))
    return KernelWindows(samples, deferred_readback=CheckWindows(readback_calls or calls))


def timing_of(windows: KernelWindows, reference: KernelWindows | None = None) -> Timing:
    """The timing, without flags from elsewhere."""
    return render_timing(windows, estimate(windows, reference), Circumstances("cold"))
