"""A confirmation: the earlier result that a job judges again, and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from domain.result import Speedup
from domain.wire import Wire


class Finding(StrEnum):
    """The second measurement's finding about the first speed-up."""

    CONFIRMED = "confirmed"
    """The two agree within their intervals."""
    SMALLER = "smaller"
    """Still faster if the first one said so, but less than it said."""
    LARGER = "larger"
    """More than the first one said."""
    VANISHED = "vanished"
    """The first one said faster, and the second one does not."""
    ONLY_BOUNDS = "only_bounds"
    """A measurement gives only a bound, so that the two cannot be compared."""
    NOT_MEASURED = "not_measured"
    """The second job has no speed-up."""

    @property
    def stands(self) -> bool | None:
        """Whether the first speed-up stands; None if the second measurement cannot say."""
        if self in (Finding.ONLY_BOUNDS, Finding.NOT_MEASURED):
            return None
        return self in (Finding.CONFIRMED, Finding.LARGER)


@dataclass(frozen=True)
class FirstResult(Wire):
    """The result that is to be confirmed. Its verdict is `passed`, as a job without a speed-up has nothing to confirm.

    `gpu_model` is the model that it ran on, as requests name it; `host` and `gpu_index` are the card, None on a CPU.
    """

    job_id: str
    speedup: Speedup
    host: str | None = None
    gpu_index: int | None = None
    gpu_model: str | None = None

    @classmethod
    def of(cls, job_id: str, result: dict[str, Any]) -> FirstResult | None:
        """Read from the HTTP body of a completed job; None if it has no speed-up."""
        speedup, environment = result.get("speedup"), result.get("environment") or {}
        if result["verdict"] != "passed" or not speedup:
            return None
        card = (environment.get(name) for name in ("host", "gpu_id", "gpu_model"))
        return cls(job_id, _speedup(speedup), *card)

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        return cls(**{**wire, "speedup": _speedup(wire["speedup"])})

    def to_wire(self) -> dict[str, Any]:
        speedup = asdict(self.speedup)
        unbounded = speedup["ci_high"] == float("inf")  # JSON has no infinity.
        return {**asdict(self), "speedup": {**speedup, "ci_high": None if unbounded else speedup["ci_high"]}}


@dataclass(frozen=True)
class Confirmation:
    """The verdict of a job about an earlier one.

    `together` is what both measurements support; None if one of them is missing or only a bound. `another_device`:
    whether it ran on another card; None on a CPU.
    """

    first: FirstResult
    verdict_stands: bool
    finding: Finding
    together: Speedup | None
    another_device: bool | None

    def to_dict(self) -> dict[str, Any]:
        """The `confirmation` of a result; JSON-ready."""
        return {
            "of": self.first.job_id,
            "verdict_stands": self.verdict_stands,
            "speedup_stands": self.finding.stands,
            "finding": self.finding.value,
            "first_speedup": self.first.to_wire()["speedup"],
            "together": asdict(self.together) if self.together else None,
            "another_device": self.another_device,
        }


def _speedup(wire: dict[str, Any]) -> Speedup:
    high = wire["ci_high"]
    return Speedup(wire["ratio"], wire["ci_low"], float("inf") if high is None else high, wire["verdict"])
