"""Whether windows whose answers were asked for when their calls were over took longer (catalogue of exploits: E8)."""

from __future__ import annotations

import math
import statistics

from domain.flags import FlagCode
from profiling.integrity.disagreement import (
    BY_HOST_SHARE,
    FEWEST,
    NOT_BY_HOST,
    Believed,
    ByHost,
    Disagreement,
    Measured,
    OtherWindows,
    believed_of,
    middle,
)
from profiling.stats.flags import head_start
from profiling.stats.statistics import Sample

HELD_BACK_MS = {"gated": 0.1, "streamed": 0.2, "host": math.inf}
"""By so much a whole window that is held back may honestly take longer, in which two processes take turns once more
(-20 to 64 µs measured behind the gate). Without it most honest ones take less, by 24 µs to 6 ms, and 97 µs more at most
but for one that does nothing (docs/measurements.md)."""

HELD_BACK = Disagreement(
    FlagCode.DEFERRED_OUTPUTS_SLOWER,
    "a call takes {longer} in windows whose outputs are requested only after the last call, otherwise {usual}",
    "the outputs are made by other means than copying, so the longer time is reported",
)


def believed_held_back(windows: Sample, held_back: OtherWindows, kind: str, launch_shift_ms: float) -> Believed:
    """The usual windows' time, or a call's in those that were held back where that is longer beyond doubt: than they,
    or a part of them."""
    usual = Measured.of(windows)
    if len(held_back.elapsed_ms) < FEWEST:
        return Believed(usual.time_ms)
    calls = held_back.calls
    net = held_back.net_ms - calls * launch_shift_ms + head_start(held_back.early_ms).added_ms
    most_apart_ms, host = HELD_BACK_MS[kind] / calls, NOT_BY_HOST
    if kind == "streamed":
        launching_ms = statistics.median(held_back.null_ms) / calls
        host = ByHost(BY_HOST_SHARE * (max(usual.time_ms, 0.0) + launching_ms), most_apart_ms)
    return believed_of(windows, middle(net / calls), most_apart_ms, HELD_BACK, host)
