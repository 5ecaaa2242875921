"""A request's choice of hardware counters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.wire import Wire

MAX_METRICS = 32
MAX_METRIC_CHARS = 160
METRIC = r"[a-z0-9_]+(\.[a-z0-9_]+){0,5}"
"""A metric's name in the profiler's form, such as `sm__cycles_active.avg`.

The pattern excludes the profiler's other queries (`regex:`, `group:`).
"""

PRINTING_SECONDS = 30.0
"""Maximum time to print a side's report, in s."""
SANITIZER_SECONDS = 180.0
"""Maximum time of all tools of compute-sanitizer together, in s."""


class Level(StrEnum):
    """How many counters are read. BASIC takes some seconds a kernel, FULL 10 to 40."""

    BASIC = "basic"
    FULL = "full"

    @property
    def seconds(self) -> float:
        """Maximum time to count one side's call, in s; counting stops then."""
        return 60.0 if self is Level.BASIC else 150.0


@dataclass(frozen=True)
class CounterRequest(Wire):
    """A level, and further metrics by name: sorted, without duplicates."""

    level: Level = Level.BASIC
    metrics: tuple[str, ...] = ()
