"""The results of a job's cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.timing import Speedup, known_fields


@dataclass(frozen=True)
class CaseResult:
    """One visible case. Times are in ms; None where it was not timed. `verdict` is None if it was not judged.

    `mismatch` is the first wrong element; `raw` is the case in the response.
    """

    name: str
    arguments: Mapping[str, Any]
    verdict: str | None
    message: str | None
    runtime_ms: float | None
    ref_runtime_ms: float | None
    speedup: Speedup | None
    mismatch: Mapping[str, Any] | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def all_of(cls, wire: Mapping[str, Any]) -> Sequence[CaseResult]:
        """The cases of a response; empty for a job without cases."""
        return tuple(map(cls._of, wire.get("cases") or ()))

    @classmethod
    def _of(cls, wire: Mapping[str, Any]) -> CaseResult:
        speedup = wire.get("speedup")
        return cls(
            name=wire["name"],
            arguments=wire.get("arguments") or {},
            verdict=wire.get("verdict"),
            message=wire.get("message"),
            runtime_ms=wire.get("runtime_ms"),
            ref_runtime_ms=wire.get("ref_runtime_ms"),
            speedup=None if speedup is None else Speedup(**known_fields(Speedup, speedup)),
            mismatch=wire.get("mismatch"),
            raw=wire,
        )
