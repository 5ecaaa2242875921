"""What of the hardware counters a request asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

MAX_METRICS = 32
MAX_METRIC_CHARS = 160
METRIC = r"[a-z0-9_]+(\.[a-z0-9_]+){0,5}"
"""A metric's name as the profiler writes it, such as `sm__cycles_active.avg`. Its other queries (`regex:`, `group:`)
have a character that is not in here."""

PRINTING_SECONDS = 30.0
"""What having a side's report printed may take."""
SANITIZER_SECONDS = 180.0
"""What all tools of compute-sanitizer together may take."""


class Level(StrEnum):
    """How much is read. BASIC takes some seconds a kernel, FULL 10 to 40."""

    BASIC = "basic"
    FULL = "full"

    @property
    def seconds(self) -> float:
        """What counting in one side's call may take; then it is given up."""
        return 60.0 if self is Level.BASIC else 150.0


@dataclass(frozen=True)
class CountersAsked:
    """A level, and metrics by name beside what it has: sorted, each once."""

    level: Level = Level.BASIC
    metrics: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, wire: dict[str, Any] | bool | None) -> Self | None:
        """From `to_wire`'s form; None where nothing is asked for. Records of earlier versions have a boolean."""
        if isinstance(wire, dict):
            return cls(Level(wire["level"]), tuple(sorted(set(wire["metrics"]))))
        return cls() if wire else None

    def to_wire(self) -> dict[str, Any]:
        return {"level": self.level.value, "metrics": list(self.metrics)}
