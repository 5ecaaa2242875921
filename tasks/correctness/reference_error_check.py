"""Excuses calls in which not the kernel but the reference errs, by the reference in float64 (docs/adr/0043)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from domain.flags.codes import FlagCode
from domain.flags.flag import Figures, Flag
from validation.compare.result import CallComparison
from validation.compare.rounding_boundary import Outputs
from validation.compare.tolerance import Tolerance
from validation.evidence.gradient_kinks import Differences
from validation.evidence.reference_error import DTYPES, kernel_is_exact, reference_error, rounds_outputs_alone

FEWEST_RUNS, ONE_IN = 8, 8
"""Number of first calls that are judged by a float64 run, and how rarely later ones are, chosen at random. The others
differ from the reference by no more than twice what those did."""
MESSAGE = (
    "{elements} of the compared elements, in {calls} calls, are beyond the tolerance because the reference errs: by up "
    "to {reference_error:.2g} of the output's rms in {float64_calls} float64 runs, the kernel by no more than a unit "
    "in the last place. They count as right; the reference should accumulate in float32"
)


class ReferenceErrorCheck:
    """The calls of one job in which the reference errs."""

    def __init__(self, tolerance: Tolerance, matched_ratio: float) -> None:
        self._tolerance = tolerance
        self._asks_for_all = matched_ratio >= 1
        self._differences = Differences()
        self._calls = self._elements = 0
        self._largest = 0.0
        self.refused = False

    @property
    def findings(self) -> list[Flag]:
        """A flag with the counts; empty if there were no such calls, or the kernel was wrong in another one."""
        if self.refused or not self._calls:
            return []
        data: Figures = {
            "elements": self._elements,
            "calls": self._calls,
            "float64_calls": self._differences.calls,
            "reference_error": self._largest,
        }
        return [Flag(FlagCode.REFERENCE_LESS_EXACT, MESSAGE.format(**data), data)]

    def applies(self, comparison: CallComparison, expected: Outputs) -> bool:
        """Whether the reference may be the one that errs: finite elements of low precision are beyond tolerance."""
        low = any(output.dtype in DTYPES for output in expected)
        return low and not (self._asks_for_all or comparison.nonfinite_count)

    def wants_run(self, expected: Outputs, actual: Outputs) -> bool:
        """Whether this call is to be judged by a float64 run. A kernel cannot tell by its inputs."""
        return not self._covers(expected, actual) or secrets.randbelow(ONE_IN) == 0

    def excuses(
        self,
        comparison: CallComparison,
        expected: Outputs,
        actual: Outputs,
        terms: int,
        exact: Outputs | None,
        rounded: Callable[[], Outputs | None],
    ) -> bool:
        """Whether the reference errs in all elements of a call beyond tolerance, and the kernel in none.

        `exact` is the reference in float64, or None if there is no run; `rounded` runs it with the source's casts.
        """
        if exact is None:
            excused = self._covers(expected, actual)
        else:
            error = self._error(expected, actual, terms, exact)
            # The casts are the same in each call.
            casts = rounded() if error is not None and self._differences.calls < FEWEST_RUNS else exact
            excused = error is not None and casts is not None and rounds_outputs_alone(exact, casts, expected)
            if excused:
                self._differences.widen(expected, actual)
                self._largest = max(self._largest, error or 0.0)
        if excused:
            self._calls += 1
            self._elements += comparison.mismatch_count
        return excused

    def _covers(self, expected: Outputs, actual: Outputs) -> bool:
        return self._differences.calls >= FEWEST_RUNS and self._differences.cover(expected, actual)

    def _error(self, expected: Outputs, actual: Outputs, terms: int, exact: Outputs) -> float | None:
        shapes = [[tensor.shape for tensor in outputs] for outputs in (exact, expected)]
        if shapes[0] != shapes[1] or not kernel_is_exact(actual, exact, terms):
            return None
        return reference_error(expected, actual, exact, terms, self._tolerance)
