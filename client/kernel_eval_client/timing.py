"""The times that the service measured, and the speed-up, with the bounds among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

BOUNDED = "the time is an upper bound"
"""What a flag says of such a time."""


def known(cls: type[Any], wire: Mapping[str, Any]) -> dict[str, Any]:
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
    """How fast and how that was measured. `trusted_ms` is by the referee's clock; the rest is in docs/api.md."""

    method: str
    trusted_ms: float
    stats: RuntimeStats = field(default_factory=RuntimeStats)
    calls_per_window: int = 0
    windows: int = 0
    calls: int = 0
    resolution_us: float | None = None
    distribution: str = ""
    cache: str = ""
    flags: Sequence[str] = ()
    single_call_ms: float | None = None
    launch_shift_us: float | None = None
    launches: int | None = None
    precision: float | None = None
    stopped_by: str | None = None
    card: Mapping[str, Any] | None = None
    window_ms: Sequence[float] = ()
    left_out: Sequence[int] = ()
    process_ms: Sequence[float] = ()
    nulls_known: bool = False

    @property
    def bounded(self) -> bool:
        """The kernel was too short to be measured: its times are upper bounds."""
        return any(BOUNDED in flag for flag in self.flags)


@dataclass(frozen=True)
class Speedup:
    """Reference time over candidate time with its 95 % interval; `high` None where there is no upper end.

    Where one of the two times is too short to be measured, all that is known is a `bound`: `ratio` repeats it then.
    """

    ratio: float
    low: float
    high: float | None
    verdict: Literal["faster", "slower", "not_distinguishable"]

    @property
    def bound(self) -> Literal["at_least", "at_most"] | None:
        """The kind of bound that `ratio` is; None where the speed-up was measured."""
        if self.high is None:
            return "at_least" if 0 < self.low == self.ratio else None
        return "at_most" if self.low == 0 and self.high == self.ratio else None

    @property
    def measured(self) -> float | None:
        """The ratio; None where it is only a bound."""
        return None if self.bound else self.ratio
