"""The windows of one contender, and the timing that they add up to."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from domain.result import Speedup, Timing
from profiling.flags import Believed, Misfit, believed, events_misfit
from profiling.statistics import Sample, resolved, runtime_stats, speedup, standard_error, undisturbed
from profiling.window import Window

# How far a runner's own times may be from the referee's window before they are not believed even as a distribution.
EVENT_SLACK = 0.10
EVENT_SLACK_MS = 0.02

METHODS = {
    (True, True): "gated_window",
    (True, False): "streamed_window",
    (False, False): "host_window",
}


@dataclass
class TimeRecord:
    """One contender's windows, all with the same number of calls, and the trusted null runner's beside them."""

    calls: int
    is_cuda: bool
    gated: bool
    elapsed_ms: list[float] = field(default_factory=list)
    null_ms: list[float] = field(default_factory=list)
    marked: list[Window] = field(default_factory=list)
    single_ms: list[float] = field(default_factory=list)
    single_null_ms: list[float] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    card: dict[str, Any] | None = None

    def add(self, window: Window, null_ms: float, *, warm_up: bool) -> None:
        """A window and the null window beside it. The first of them all only warms up and gives the distribution."""
        if window.call_ms:
            self.marked.append(window)
        self.null_ms.append(null_ms)
        if not warm_up:
            self.elapsed_ms.append(window.elapsed_ms)

    def drop_last(self) -> None:
        """The last window is to be taken again."""
        self.elapsed_ms.pop()

    @property
    def overhead_ms(self) -> float:
        """What a window costs when nothing is computed in it. No submission can influence it."""
        return statistics.median(self.null_ms)

    @property
    def spread_ms(self) -> float:
        """What null windows vary by."""
        return max(self.null_ms) - min(self.null_ms)

    @property
    def correction(self) -> float:
        """By what the windows' time is to be multiplied where a single call takes longer beyond doubt; else 1."""
        windows = self.net_ms[undisturbed(self.net_ms)] / self.calls
        level = float(windows.mean())
        return self._single_call(windows).time_ms / level if level > 0 else 1.0

    @property
    def net_ms(self) -> Sample:
        """Each window's clock less the overhead, never by the runner's word. Noise may take a short one below zero."""
        return np.asarray(self.elapsed_ms) - self.overhead_ms

    def timing(self, cache: str) -> Timing:
        """The timing. Its level is the referee's alone; the runner's events give only the distribution around it."""
        net = self.net_ms
        windows = net[undisturbed(net)] / self.calls
        level, bounded = resolved(windows)
        shape = self._shape()
        flags = list(self.flags)
        if bounded:
            flags.append("too short for what a window can resolve here: the time is an upper bound, not a measurement")
        misfits = [self._misfit(window) for window in self.marked if not self._fits(window)] if self.calls > 1 else []
        if (misfit := events_misfit(misfits, len(self.marked))) is not None:
            flags.append(misfit)
        if (alone_ms := self._single_call(windows)).flag is not None:
            level, shape = alone_ms.time_ms, None
            windows = np.full(1, level)
            flags.append(alone_ms.flag)
        if len(windows) < len(net):
            flags.append(f"{len(net) - len(windows)} of {len(net)} windows were disturbed from outside and left out")
        # A distribution that reaches below zero would be one of noise.
        alone = windows if not bounded and windows.min() > 0 else np.full(1, level)
        return Timing(
            method=METHODS[self.is_cuda, self.gated],
            stats=runtime_stats(alone if shape is None else level * shape),
            trusted_ms=level,
            calls_per_window=self.calls,
            windows=len(windows),
            calls=len(windows) * self.calls,
            resolution_us=self.spread_ms * 1e3 / self.calls,
            distribution="windows" if shape is None else "events",
            cache=cache,
            flags=flags,
            single_call_ms=self._single_call_ms(),
            card=self.card,
        )

    def _single_call(self, windows: Sample) -> Believed:
        """The windows' time, or a single call's where that is longer beyond doubt."""
        level = float(windows.mean())
        if len(self.single_ms) < 3:
            return Believed(level)
        single = np.asarray(self.single_ms) - statistics.median(self.single_null_ms)
        return believed(level, standard_error(windows), float(np.median(single)), standard_error(single))

    def _single_call_ms(self) -> float | None:
        if not self.single_ms:
            return None
        return statistics.median(self.single_ms) - statistics.median(self.single_null_ms)

    def _misfit(self, window: Window) -> Misfit:
        return Misfit(window.elapsed_ms - self.overhead_ms, sum(window.call_ms))

    def _shape(self) -> Sample | None:
        """Call times relative to their window's mean; None where they are not to be believed or say nothing."""
        if self.calls == 1 or not self.marked or not all(self._fits(window) for window in self.marked):
            return None
        return np.concatenate([np.asarray(window.call_ms) / np.mean(window.call_ms) for window in self.marked])

    def _fits(self, window: Window) -> bool:
        net, total = max(window.elapsed_ms - self.overhead_ms, 0.0), sum(window.call_ms)
        if len(window.call_ms) != self.calls or not total > 0 or min(window.call_ms) < 0:
            return False
        return abs(total - net) <= EVENT_SLACK * net + EVENT_SLACK_MS + self.spread_ms


# What one kernel's time differs by between two processes, as a share of the time and in ms a call and a window: A/A
# comparisons on an H200 (docs/measurements.md). Windows in one pair of processes do not average it out.
BETWEEN_PROCESSES = 0.009
BETWEEN_PROCESSES_CALL_MS = 80e-6
BETWEEN_PROCESSES_WINDOW_MS = 10e-3


def paired_speedup(reference: TimeRecord, candidate: TimeRecord) -> Speedup | None:
    """From the windows that were shot side by side; a pair counts where nothing broke into either."""
    ours, theirs = candidate.net_ms, reference.net_ms
    kept = undisturbed(ours) & undisturbed(theirs)
    window_ms = min(float(ours.mean()), float(theirs.mean()))
    if not reference.is_cuda or window_ms <= 0:
        return speedup(theirs[kept], ours[kept])
    spread = math.hypot(
        BETWEEN_PROCESSES,
        BETWEEN_PROCESSES_CALL_MS * candidate.calls / window_ms,
        BETWEEN_PROCESSES_WINDOW_MS / window_ms,
    )
    ours, theirs = ours * candidate.correction, theirs * reference.correction
    return speedup(theirs[kept], ours[kept], between_processes=spread)
