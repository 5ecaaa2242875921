"""Results of a job's cases, and how a response shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from domain.cases.case import Case
from domain.result import Comparison, Speedup, Status, Timing


@dataclass(frozen=True)
class CaseResult:
    """The result of one case, as far as the job came.

    - `status`: PASSED, WRONG_RESULT, or how a kernel failed; None if the case was not judged.
    - `timing`, `reference_timing`, `speedup`: None if the case is not timed, and if the kernel is wrong in any case.
    - `checked`: whether windows of other kinds checked its time.
    """

    case: Case
    status: Status | None = None
    message: str | None = None
    shapes: list[list[int]] | None = None
    comparison: Comparison | None = None
    timing: Timing | None = None
    reference_timing: Timing | None = None
    speedup: Speedup | None = None
    checked: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; not for a hidden case."""
        comparison, timing, reference = self.comparison, self.timing, self.reference_timing
        return {
            "name": self.case.name,
            "arguments": self.case.arguments,
            "timed": self.case.timed,
            "verdict": self.status.value if self.status is not None else None,
            "message": self.message,
            "shapes": self.shapes,
            "runtime_ms": timing.latency_ms if timing else None,
            "ref_runtime_ms": reference.latency_ms if reference else None,
            "relative_ci": timing.relative_ci if timing else None,
            "windows": timing.windows if timing else 0,
            "calls_per_window": timing.calls_per_window if timing else 0,
            "time_checked": self.checked,
            "flags": [flag.code.value for flag in timing.flags] if timing else [],
            "speedup": asdict(self.speedup) if self.speedup else None,
            "max_abs_diff": comparison.max_abs_diff if comparison else None,
            "mismatch_count": comparison.mismatch_count if comparison else None,
            "element_count": comparison.element_count if comparison else None,
            "mismatch": comparison.first_mismatch if comparison else None,
        }


@dataclass(frozen=True)
class CaseResults:
    """All cases of a job, in the order in which their source gives them."""

    results: tuple[CaseResult, ...]

    @property
    def visible(self) -> list[CaseResult]:
        return [result for result in self.results if not result.case.hidden]

    @property
    def timed(self) -> list[CaseResult]:
        return [result for result in self.results if result.case.timed]

    @property
    def failed(self) -> CaseResult | None:
        """The first case in which the kernel is wrong, a visible one if there is any; None if none is known."""
        wrong = [result for result in self.results if result.status not in (None, Status.PASSED)]
        return next((result for result in wrong if not result.case.hidden), wrong[0] if wrong else None)

    def to_dict(self) -> dict[str, Any]:
        """The response's fields `cases` and `cases_summary`; JSON-ready. Hidden cases are only counted."""
        hidden = [result for result in self.results if result.case.hidden]
        return {
            "cases": [result.to_dict() for result in self.visible],
            "cases_summary": {
                "source": self.results[0].case.source.value,
                **_counts(self.results),
                "hidden": _counts(hidden),
            },
        }


def _counts(results: Sequence[CaseResult]) -> dict[str, int]:
    passed = sum(result.status is Status.PASSED for result in results)
    return {"count": len(results), "passed": passed, "judged": sum(result.status is not None for result in results)}
