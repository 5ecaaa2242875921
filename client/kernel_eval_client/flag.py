"""Flags: coded warnings beside a verdict. docs/errors.md lists the codes with what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.typed_members import objects_in_list, text

UPPER_BOUND = "upper_bound"
"""The code of a time that is too short to be measured."""
CPU_TIME_INDICATIVE = "cpu_time_indicative"
"""The code of a time that was taken on a CPU."""
INTERPRETED = "interpreted"
"""The code of a time of Triton's interpreter on the CPU."""

FIXED_OUTPUTS_PASS = "fixed_outputs_pass"
"""The code of a problem that outputs fixed beforehand would pass: its speed-ups say nothing."""
LOWER_PRECISION = "lower_precision"
"""The code of outputs that seem to be computed in a lower precision than their dtype."""


@dataclass(frozen=True)
class Flag:
    """One warning. Match `code`: `message` is for people and may change. `data` has the message's figures.

    `kernel` is "candidate" or "reference" in `Result.flags`, None for the task and the GPU; None in all other lists.
    """

    code: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    kernel: str | None = None

    def __str__(self) -> str:
        return self.message if self.kernel is None else f"{self.kernel}: {self.message}"

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Flag:
        """From the wire's form; what has another type becomes empty."""
        data = wire.get("data")
        return cls(
            text(wire.get("code")) or "",
            text(wire.get("message")) or "",
            data if isinstance(data, Mapping) else {},
            text(wire.get("kernel")),
        )

    @classmethod
    def all_of(cls, wire: object) -> tuple[Flag, ...]:
        """From a list of the wire's; members that are no objects are left out."""
        return tuple(map(cls.from_dict, objects_in_list(wire)))
