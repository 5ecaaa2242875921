"""Renders a kernel's windows and their estimate as the timing of a result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import Timing
from profiling.integrity.single_call import median_single_call_ms
from profiling.results.estimate import TimeEstimate
from profiling.results.samples import KernelWindows, Samples
from profiling.stats.call_distribution import matching_event_shapes
from profiling.stats.downsample import evenly_spaced, rounded
from profiling.stats.flags import Misfit, events_misfit
from profiling.stats.statistics import DEVIATIONS, Sample, half_width, resolved, runtime_stats
from profiling.stats.stopping_rule import Stop

METHODS = {"gated": "gated_window", "streamed": "streamed_window", "host": "host_window"}


@dataclass(frozen=True)
class Circumstances:
    """Facts of a timing besides its times: cache state, flags of the stage, why timing stopped, the card's state."""

    cache: str
    flags: Sequence[Flag] = ()
    stop: Stop | None = None
    gpu_state: dict[str, Any] | None = None


def render_timing(windows: KernelWindows, estimate: TimeEstimate, circumstances: Circumstances) -> Timing:
    """The timing. Its level comes from the referee's clock alone; the runner's events only give its distribution."""
    samples, setup, net = windows.usual, estimate.setup, estimate.net_ms
    call_ms, checked = estimate.call_ms, estimate.checked
    counted = len(call_ms)
    listed = evenly_spaced(len(net))
    level, bounded = resolved(call_ms)
    shapes, misfits = _event_shapes(samples)
    shape = np.concatenate(shapes) if shapes and not misfits and not bounded else None
    possible = [
        Flag.of(FlagCode.UPPER_BOUND, call_ms=level) if bounded else None,
        # On a CPU the operating system interrupts a call at any moment: that noise says nothing about the kernel.
        events_misfit(misfits, len(samples.event_samples)) if setup.is_cuda else None,
        estimate.early_start.flag,
        checked.flag,
        _excluded(len(net) - counted, len(net)) if counted < len(net) else None,
    ]
    if checked.flag is not None:
        level, shape = checked.time_ms, None
        call_ms = np.full(1, level)
    # A distribution that reaches below zero would only be one of noise.
    sample = call_ms if not bounded and call_ms.min() > 0 else np.full(1, level)
    narrow = half_width(call_ms)
    if math.isfinite(narrow):
        spread_ms = estimate.process_spread_ms(abs(setup.launch_shift_ms))
        narrow = math.hypot(narrow, DEVIATIONS * spread_ms / (setup.calls * level))
    return Timing(
        method=METHODS[setup.kind],
        stats=runtime_stats(sample if shape is None else level * shape),
        latency_ms=level,
        calls_per_window=setup.calls,
        windows=counted,
        calls=counted * setup.calls,
        resolution_us=float(np.ptp(np.asarray(samples.null_ms)[estimate.used])) * 1e3 / setup.calls,
        distribution="events" if shape is not None else "windows" if len(sample) > 1 else "none",
        cache=circumstances.cache,
        flags=[*circumstances.flags, *(flag for flag in possible if flag is not None)],
        single_call_ms=median_single_call_ms(windows.single),
        relative_ci=narrow if math.isfinite(narrow) and not bounded else None,
        launch_overhead_correction_us=setup.launch_shift_ms * 1e3,
        launches=setup.launches,
        stop_reason=circumstances.stop.value if circumstances.stop is not None else None,
        gpu_state=circumstances.gpu_state,
        window_ms=[rounded(ms) for ms in net[listed] / setup.calls],
        excluded_windows=[position for position, window in enumerate(listed) if not estimate.used[window]],
    )


def _excluded(excluded: int, windows: int) -> Flag:
    were = "was" if excluded == 1 else "were"
    message = f"{excluded} of {windows} windows {were} disturbed by other load and dropped"
    return Flag(FlagCode.WINDOWS_EXCLUDED, message, {"excluded_windows": excluded, "windows": windows})


def _event_shapes(samples: Samples) -> tuple[list[Sample], list[Misfit]]:
    """Call times relative to their window's mean, and the windows whose call times do not fit the clock."""
    # On a host the overhead of a window varies by that much, which limits what the clock can check.
    on_host = not samples.setup.is_cuda and samples.null_ms
    clock_error_ms = max(samples.null_ms) - min(samples.null_ms) if on_host else 0.0
    return matching_event_shapes(samples.event_samples, samples.setup.calls, clock_error_ms)
