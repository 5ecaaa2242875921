"""Compares usual windows with deferred-readback windows, in which outputs are copied after all calls (exploit E8).

The null window subtracts the copying of outputs. A kernel that never copies them would gain by that in usual windows.
"""

from __future__ import annotations

import math
import statistics

from domain.flags.codes import FlagCode
from profiling.integrity.disagreement import (
    FEWEST,
    HOST_JITTER_SHARE,
    NO_HOST_JITTER,
    CheckWindows,
    Disagreement,
    Estimate,
    HostJitter,
    Measured,
    middle,
    reconcile_windows,
)
from profiling.stats.flags import early_start
from profiling.stats.statistics import Sample

DEFERRED_READBACK_MS = {"gated": 0.1, "streamed": 0.2, "host": math.inf}
"""Maximum honest extra time of a whole deferred-readback window, in ms, by kind. Two processes take turns once more in
it: gated ones take -20 to 64 µs longer. Most streamed ones take less, by 24 µs to 6 ms, and at most 97 µs more except
for a kernel that does nothing (docs/measurements.md)."""

HELD_BACK = Disagreement(
    FlagCode.DEFERRED_OUTPUTS_SLOWER,
    "a call takes {longer} in windows whose outputs are requested only after the last call, otherwise {usual}",
    "the outputs are made by other means than copying, so the longer time is reported",
)


def reconcile_deferred_readback(
    windows: Sample, deferred_readback: CheckWindows, kind: str, launch_shift_ms: float
) -> Estimate:
    """The usual windows' time, or the deferred-readback windows' time per call if that is significantly longer.

    It is compared with the mean of the usual windows and with the shortest of them.
    """
    usual = Measured.of(windows)
    if len(deferred_readback.elapsed_ms) < FEWEST:
        return Estimate(usual.time_ms)
    calls = deferred_readback.calls
    net = deferred_readback.net_ms - calls * launch_shift_ms + early_start(deferred_readback.early_start_ms).added_ms
    tolerance_ms, host = DEFERRED_READBACK_MS[kind] / calls, NO_HOST_JITTER
    if kind == "streamed":
        launching_ms = statistics.median(deferred_readback.null_ms) / calls
        host = HostJitter(HOST_JITTER_SHARE * (max(usual.time_ms, 0.0) + launching_ms), tolerance_ms)
    return reconcile_windows(windows, middle(net / calls), tolerance_ms, HELD_BACK, host)
