"""The windows of one contender, and the timing that they add up to."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import numpy as np

from domain.result import Speedup, Timing
from profiling.statistics import Sample, runtime_stats, speedup, undisturbed
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
    flags: list[str] = field(default_factory=list)

    def add(self, window: Window, null_ms: float, *, warm_up: bool) -> None:
        """A window and the null window beside it. The first of them all only warms up and gives the distribution."""
        if window.call_ms:
            self.marked.append(window)
        self.null_ms.append(null_ms)
        if not warm_up:
            self.elapsed_ms.append(window.elapsed_ms)

    @property
    def overhead_ms(self) -> float:
        """What a window costs when nothing is computed in it. No submission can influence it."""
        return statistics.median(self.null_ms)

    @property
    def net_ms(self) -> list[float]:
        """Each window's clock less the overhead: never below zero, never by the runner's word."""
        return [max(elapsed - self.overhead_ms, 0.0) for elapsed in self.elapsed_ms]

    def timing(self, cache: str) -> Timing:
        """The timing. Its level is the referee's alone; the runner's events give only the distribution around it."""
        net = np.asarray(self.net_ms)
        kept = undisturbed(net)
        level = net[kept] / self.calls
        shape, believed = self._shape()
        flags = list(self.flags)
        if not believed:
            flags.append(
                "the kernel's own event times do not fit the referee's clock: the windows alone are the distribution"
            )
        if len(level) < len(net):
            flags.append(f"{len(net) - len(level)} of {len(net)} windows were disturbed from outside and left out")
        return Timing(
            method=METHODS[self.is_cuda, self.gated],
            stats=runtime_stats(np.outer(level, shape).ravel()),
            trusted_ms=float(level.mean()),
            calls_per_window=self.calls,
            windows=len(level),
            calls=len(level) * self.calls,
            resolution_us=(max(self.null_ms) - min(self.null_ms)) * 1e3 / self.calls,
            distribution="events" if believed and self.calls > 1 else "windows",
            cache=cache,
            flags=flags,
        )

    def _shape(self) -> tuple[Sample, bool]:
        """Call times relative to their mean, and whether they could be believed; a single 1 where not."""
        whole = np.ones(1)
        if self.calls == 1 or not self.marked:
            return whole, True
        if not all(self._fits(window) for window in self.marked):
            return whole, False
        events = np.concatenate([window.call_ms for window in self.marked])
        return events / events.mean(), True

    def _fits(self, window: Window) -> bool:
        net, total = max(window.elapsed_ms - self.overhead_ms, 0.0), sum(window.call_ms)
        if len(window.call_ms) != self.calls or not total > 0 or min(window.call_ms) < 0:
            return False
        return abs(total - net) <= EVENT_SLACK * net + EVENT_SLACK_MS


def paired_speedup(reference: TimeRecord, candidate: TimeRecord) -> Speedup | None:
    """From the windows that were shot side by side; a pair counts where nothing broke into either."""
    ours, theirs = np.asarray(candidate.net_ms), np.asarray(reference.net_ms)
    kept = undisturbed(ours) & undisturbed(theirs)
    return speedup(theirs[kept], ours[kept])
