"""The result of comparing one call's outputs, and the aggregate of many calls."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any

from domain.dtype import CODES, PACKED, read_code
from domain.result import Comparison
from validation.compare.tolerance import EXACT, Tolerance


@dataclass(frozen=True)
class CallComparison:
    """One call's outputs compared. Differences cover pairs of finite elements; relative ones cover expected != 0.

    `fault` says why the outputs could not be compared element by element; every element then counts as wrong.
    `nonfinite_count` counts the wrong elements where one side is NaN or infinite. `relative_rms_error` is the largest
    rms(actual - expected) / rms(expected) of all outputs, None where that is not defined.
    """

    tolerance: Tolerance
    element_count: int
    mismatch_count: int = 0
    nonfinite_count: int = 0
    strict_mismatch_count: int = 0
    strict_tolerance: Tolerance = EXACT
    max_abs_diff: float = 0.0
    max_rel_diff: float = 0.0
    sum_abs_diff: float = 0.0
    relative_rms_error: float | None = 0.0
    first_mismatch: dict[str, Any] | None = None
    fault: str | None = None

    @property
    def passed(self) -> bool:
        return self.fault is None and self.mismatch_count == 0


class Aggregator:
    """Aggregates compared calls into one result in constant memory.

    `names` says what each output is, or is empty. `dtypes` are the outputs' own: those of CODES are compared as bytes.
    """

    def __init__(self, names: Sequence[str] = (), dtypes: Sequence[str] = ()) -> None:
        self._names = names
        self._dtypes = dict(enumerate(dtypes))
        self._total: CallComparison | None = None
        self._calls = 0
        self._right = 0

    def add(self, calls: list[CallComparison]) -> None:
        if calls:
            self._total = merge_comparisons(calls if self._total is None else [self._total, *calls])
            self._calls += len(calls)
            self._right += sum([call.passed for call in calls])

    @property
    def comparison(self) -> Comparison:
        """The aggregate, JSON-ready. Raises ValueError where no call was compared, since that must not count as a
        pass."""
        total, right, calls = self._total, self._right, self._calls
        if total is None:
            raise ValueError("no call was compared")
        first, note = self._first_mismatch(total)
        total = replace(total, first_mismatch=first)
        mean = clamp_finite(total.sum_abs_diff / total.element_count) if total.element_count else 0.0
        return Comparison(
            passed=right == calls,
            calls=calls,
            calls_passed=right,
            max_abs_diff=total.max_abs_diff,
            max_rel_diff=total.max_rel_diff,
            mean_abs_diff=mean,
            mismatch_count=total.mismatch_count,
            element_count=total.element_count,
            atol=total.tolerance.atol,
            rtol=total.tolerance.rtol,
            message=None if right == calls else _message(total, right, calls, mean, self._names) + note,
            first_mismatch=first,
            strict={
                "passed": total.fault is None and total.strict_mismatch_count == 0,
                "atol": total.strict_tolerance.atol,
                "rtol": total.strict_tolerance.rtol,
                "mismatch_count": total.strict_mismatch_count,
                "relative_rms_error": total.relative_rms_error,
            },
        )

    def _first_mismatch(self, total: CallComparison) -> tuple[dict[str, Any] | None, str]:
        """The first wrong element, with what bytes of CODES mean, and a note on those."""
        first = total.first_mismatch
        dtype = self._dtypes.get(first["output"], "") if first is not None else ""
        if first is None or dtype not in CODES:
            return first, ""
        read = {side: read_code(first[side], dtype) for side in ("expected", "actual")}
        holds = "holds two numbers, that of the low bits first" if dtype == PACKED else "is a scale"
        note = f". Each byte of {dtype} {holds}; counts, indexes and differences are those of bytes"
        return first | {side: "nan" if value != value else value for side, value in read.items()}, note


def merge_comparisons(parts: list[CallComparison]) -> CallComparison:
    """Merges several outputs or several calls into one comparison. An object that occurs many times is processed
    once."""
    if len(parts) == 1:
        return parts[0]
    times = Counter(map(id, parts))
    unique = list({id(part): part for part in parts}.values())
    counts = [times[id(part)] for part in unique]
    ratios = [part.relative_rms_error for part in unique]
    first = next((part for part in unique if not part.passed), unique[0])
    return CallComparison(
        parts[0].tolerance,
        sum(map(mul, counts, [part.element_count for part in unique])),
        mismatch_count=sum(map(mul, counts, [part.mismatch_count for part in unique])),
        nonfinite_count=sum(map(mul, counts, [part.nonfinite_count for part in unique])),
        strict_mismatch_count=sum(map(mul, counts, [part.strict_mismatch_count for part in unique])),
        strict_tolerance=Tolerance(
            max(part.strict_tolerance.atol for part in unique), max(part.strict_tolerance.rtol for part in unique)
        ),
        max_abs_diff=max(part.max_abs_diff for part in unique),
        max_rel_diff=max(part.max_rel_diff for part in unique),
        sum_abs_diff=clamp_finite(sum(map(mul, counts, [part.sum_abs_diff for part in unique]))),
        relative_rms_error=None if None in ratios else max(ratio for ratio in ratios if ratio is not None),
        first_mismatch=first.first_mismatch,
        fault=next((part.fault for part in unique if part.fault), None),
    )


def _message(total: CallComparison, right: int, calls: int, mean: float, names: Sequence[str]) -> str:
    passed = f"calls passed {right}/{calls}"
    if total.fault is not None:
        return f"{total.fault} ({passed})"
    text = (
        f"Outputs are out of tolerance: {total.mismatch_count} of {total.element_count} elements"
        f"{f' of {calls} calls' if calls > 1 else ''} ({passed}), "
    )
    if total.nonfinite_count < total.mismatch_count:
        text += f"max difference {total.max_abs_diff:.6e}, avg difference {mean:.6e}, "
    text += str(total.tolerance)
    if total.nonfinite_count:
        text += f"; {total.nonfinite_count} are NaN or infinite on one side only"
    if total.first_mismatch is not None:
        name = f" ({names[total.first_mismatch['output']]})" if names else ""
        text += "; first at output {output}{name}, index {index}: expected {expected}, got {actual}".format(
            name=name, **total.first_mismatch
        )
    return text


def clamp_finite(value: float) -> float:
    """The value, or the largest float64 in place of infinity, which JSON cannot hold."""
    return min(value, sys.float_info.max)
