"""Findings of the `determinism` check: do equal inputs give equal bits, and do rows depend on their batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from domain.flags.flag import Flag


class BatchVerdict(StrEnum):
    """Whether a row of the outputs depends on the other rows of its batch, beyond what the task wants."""

    INVARIANT = "invariant"
    VARIANT = "variant"
    """A row has other bits beside other rows, or in a smaller batch, yet within the tolerance."""
    UNTESTED = "untested"


@dataclass(frozen=True)
class OutputRepeats:
    """One output over calls on the same inputs, in all processes.

    - `differing_calls`: calls whose bits differ from those of the first call of the same process.
    - `max_abs_diff`: the largest difference between two of these calls; None where both are not finite.
    - `fingerprint`: a number made of the first call's bits; not part of a response.
    - `equal_across_processes`: None with one process.
    """

    calls: int
    differing_calls: int
    max_abs_diff: float | None
    fingerprint: int
    equal_across_processes: bool | None = None

    @property
    def repeats(self) -> bool:
        return not self.differing_calls and self.equal_across_processes is not False

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "bitwise_equal": self.repeats,
            "calls": self.calls,
            "differing_calls": self.differing_calls,
            "max_abs_diff": self.max_abs_diff,
            "equal_across_processes": self.equal_across_processes,
        }


@dataclass(frozen=True)
class Batch:
    """`differing_rows` of `rows` rows had other bits; `sizes` are the batch sizes that were tried beside the task's."""

    verdict: BatchVerdict
    rows: int = 0
    differing_rows: int = 0
    sizes: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why it is untested, or why no other batch size was tried."""


@dataclass(frozen=True)
class Determinism:
    """The check's result for the candidate. `untested` is the reason if the calls could not be repeated.

    `flags` say what is neither shown nor as wanted.
    """

    processes: int = 1
    outputs: list[OutputRepeats] = field(default_factory=list)
    batch: Batch = field(default_factory=lambda: Batch(BatchVerdict.UNTESTED))
    untested: str | None = None
    flags: list[Flag] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "processes": self.processes,
            "outputs": [output.to_dict() for output in self.outputs],
            "batch": asdict(self.batch),
            "untested": self.untested,
            "flags": [asdict(flag) for flag in self.flags],
        }
