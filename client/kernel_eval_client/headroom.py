"""How far a kernel's time is from the least time of its work: a signal for when to stop optimising."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_eval_client.typed_members import member, number, text

NEAR = 1.25
"""Ratio up to which little is left to gain: the least time is at rates that this card was measured to reach."""


@dataclass(frozen=True)
class Headroom:
    """`ratio` is the time over the least time, at the rates of the `bound` ("memory" or "arithmetic").

    `basis` is "bytes" where no operations were counted: the ratio is then too large for a kernel that computes much.
    Without a ratio, `unavailable` is why (docs/api.md, "Headroom").
    """

    ratio: float | None
    bound: str | None = None
    basis: str | None = None
    unavailable: str | None = None

    @property
    def is_near(self) -> bool:
        """Whether little is left to gain."""
        return self.ratio is not None and self.ratio <= NEAR

    @classmethod
    def of(cls, kernel: Mapping[str, Any]) -> Headroom:
        """Reads `headroom` of a kernel's result; of a service that has none, one without a ratio."""
        wire = kernel.get("headroom")
        names = ("bound", "basis", "unavailable")
        return cls(number(member(wire, "ratio")), *(text(member(wire, name)) for name in names))

    def __str__(self) -> str:
        if self.ratio is None:
            return "unknown"
        counted = "bytes and operations" if self.basis == "bytes_and_operations" else "bytes alone"
        return f"{self.ratio:.3g} times the least time of its {counted} at this card's measured rates ({self.bound})"
