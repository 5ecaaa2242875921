"""The times that the service measured, and the speed-up, with the bounds among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from kernel_eval_client.flag import UPPER_BOUND, Flag


def known_fields(cls: type[Any], wire: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `wire` that are fields of that dataclass."""
    return {each.name: wire[each.name] for each in fields(cls) if each.name in wire}


@dataclass(frozen=True)
class RuntimeStats:
    """Times of single calls in ms."""

    mean: float = 0.0
    std: float = 0.0
    min: float = 0.0
    max: float = 0.0
    median: float = 0.0
    percentile_95: float = 0.0
    percentile_99: float = 0.0


@dataclass(frozen=True)
class Timing:
    """How fast and how that was measured. `latency_ms` is by the referee's clock; the rest is in docs/api.md."""

    method: str
    latency_ms: float
    stats: RuntimeStats = field(default_factory=RuntimeStats)
    calls_per_window: int = 0
    windows: int = 0
    calls: int = 0
    resolution_us: float | None = None
    distribution: str = ""
    cache: str = ""
    flags: Sequence[Flag] = ()
    single_call_ms: float | None = None
    launch_overhead_correction_us: float | None = None
    launches: int | None = None
    relative_ci: float | None = None
    stop_reason: str | None = None
    gpu_state: Mapping[str, Any] | None = None
    window_ms: Sequence[float] = ()
    excluded_windows: Sequence[int] = ()
    per_process_ms: Sequence[float] = ()
    baseline_from_cache: bool = False

    @property
    def bounded(self) -> bool:
        """The kernel was too short to be measured: its times are upper bounds."""
        return any(flag.code == UPPER_BOUND for flag in self.flags)


@dataclass(frozen=True)
class Speedup:
    """Reference time over candidate time with its 95 % interval; `ci_high` None where there is no upper end.

    Where one of the two times is too short to be measured, all that is known is a `bound`: `ratio` repeats it then.
    """

    ratio: float
    ci_low: float
    ci_high: float | None
    verdict: Literal["faster", "slower", "not_distinguishable"]

    @property
    def bound(self) -> Literal["at_least", "at_most"] | None:
        """The kind of bound that `ratio` is; None where the speed-up was measured."""
        if self.ci_high is None:
            return "at_least" if 0 < self.ci_low == self.ratio else None
        return "at_most" if self.ci_low == 0 and self.ci_high == self.ratio else None

    @property
    def measured(self) -> float | None:
        """The ratio; None where it is only a bound."""
        return None if self.bound else self.ratio
