"""The windows of one contender, and the timing that they add up to."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.result import Timing
from profiling.calibration import Overhead
from profiling.statistics import runtime_stats
from profiling.window import Window

# How far the runner's own times may be from the referee's window before they are not believed even as a distribution.
EVENT_SLACK = 0.10
EVENT_SLACK_MS = 0.02

METHODS = {
    (True, True): "gated_window",
    (True, False): "streamed_window",
    (False, False): "host_window",
}


@dataclass
class TimeRecord:
    """One contender's windows, all with the same number of calls."""

    calls: int
    overhead: Overhead
    is_cuda: bool
    gated: bool
    net_ms: list[float] = field(default_factory=list)
    call_ms: list[list[float]] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    def add(self, window: Window) -> None:
        """A window's clock less the overhead: never below zero, never by the runner's word."""
        self.net_ms.append(max(window.elapsed_ms - self.overhead.median_ms, 0.0))
        self.call_ms.append(window.call_ms)

    def timing(self, cache: str) -> Timing:
        """The timing. `stats.mean` is the referee's figure; events give only the distribution around it."""
        samples: list[float] = []
        believed = 0
        for net, events in zip(self.net_ms, self.call_ms, strict=True):
            if self._fits(net, events):
                believed += 1
                scale = net / sum(events)
                samples.extend(ms * scale for ms in events)
            else:
                samples.extend([net / self.calls] * self.calls)
        flags = list(self.flags)
        if believed < len(self.net_ms):
            flags.append(
                f"in {len(self.net_ms) - believed} of {len(self.net_ms)} windows the kernel's own event times do not "
                "fit the referee's clock; there the window alone is the time"
            )
        return Timing(
            method=METHODS[self.is_cuda, self.gated],
            stats=runtime_stats(samples),
            trusted_ms=sum(self.net_ms) / (len(self.net_ms) * self.calls),
            calls_per_window=self.calls,
            windows=len(self.net_ms),
            calls=len(self.net_ms) * self.calls,
            resolution_us=self.overhead.spread_ms * 1e3 / self.calls,
            distribution="events" if believed else "windows",
            cache=cache,
            flags=flags,
        )

    def _fits(self, net: float, events: list[float]) -> bool:
        total = sum(events)
        if len(events) != self.calls or total <= 0 or min(events) < 0:
            return False
        return abs(total - net) <= EVENT_SLACK * net + EVENT_SLACK_MS
