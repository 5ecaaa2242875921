"""Judges the few elements that are beyond tolerance by the reference in float64 (docs/adr/0036)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from domain.flags.codes import FlagCode
from domain.flags.flag import Figures, Flag
from domain.value import leaves
from tasks.correctness.input_batches import Arguments
from validation.compare.result import CallComparison
from validation.compare.rounding_boundary import Outputs, few_are_wrong, wrong_positions
from validation.compare.tolerance import Tolerance
from validation.evidence.float64_bound import (
    error_bound,
    is_low_precision,
    most_beyond,
    reduction_length,
    relative_allowance,
    root_mean_square,
)

MOST_RUNS = 8
"""Maximum calls of a job that a float64 run judges. In a later call both sides may be off by the bound, so they may
differ by twice the largest bound of those runs."""
RIGHT_MESSAGE = (
    "{elements} of the compared elements, in {calls} calls, are beyond the tolerance. Their error against float64 is "
    "at most {error_to_bound:.2f} of what the output's dtype and {reduction_length:.0f} additions in float32 allow: "
    "they count as right"
)
WRONG_MESSAGE = (
    "{elements} elements of a call are beyond the tolerance, and the kernel's error against float64 is "
    "{error_to_bound:.2f} times what the output's dtype and {reduction_length:.0f} additions in float32 allow"
)
UNAVAILABLE_MESSAGE = (
    "{elements} elements of a call are beyond the tolerance: so few that float64 would decide, but {reason}, so they "
    "count as wrong"
)


class Float64Check:
    """The float64 runs of one job, and what they said.

    `findings` are coded flags for the report. At most a share of all compared elements may be beyond tolerance, namely
    what `matched_ratio` leaves.
    """

    def __init__(self, tolerance: Tolerance, matched_ratio: float) -> None:
        self._tolerance = tolerance
        self._matched_ratio = matched_ratio
        self._compared = self._beyond = self._calls = self._runs = 0
        self._allowances: list[float] = []
        self._length = 0.0
        self._worst = 0.0
        self.refusal: Flag | None = None

    @property
    def findings(self) -> list[Flag]:
        """Flags with the result for elements beyond tolerance; empty if there were none."""
        if self.refusal is not None:
            return [self.refusal]
        if not self._calls:
            return []
        data = self._figures(self._beyond, self._worst) | {
            "calls": self._calls,
            "float64_calls": self._runs,
            "matched_ratio": 1 - self._beyond / self._compared,
            "required_matched_ratio": self._matched_ratio,
        }
        return [Flag(FlagCode.RIGHT_BY_FLOAT64, RIGHT_MESSAGE.format(**data), data)]

    def count(self, comparisons: list[CallComparison]) -> None:
        """Adds compared calls to those of which the share is taken."""
        self._compared += sum(comparison.element_count for comparison in comparisons)

    def applies(self, comparison: CallComparison, expected: Outputs, arguments: Arguments) -> bool:
        """Whether float64 decides about a call: few elements are beyond tolerance, and a dtype is of low precision."""
        few = self._beyond + comparison.mismatch_count <= most_beyond(self._compared, self._matched_ratio)
        low = any(map(is_low_precision, [*expected, *leaves(arguments, torch.Tensor)]))
        return few and low and not comparison.nonfinite_count

    @property
    def wants_run(self) -> bool:
        """Whether the next call is to be judged by a float64 run."""
        return self._runs < MOST_RUNS

    def check(
        self,
        expected: Outputs,
        actual: Outputs,
        arguments: Arguments,
        exact: Outputs | None,
        operations: Callable[[], float],
    ) -> Flag | None:
        """Judges the elements of a call that are beyond tolerance; returns None if they are right, else why not.

        `exact` is the reference in float64, or None if there is no run; `operations` counts those of a call.
        """
        inputs = leaves(arguments, torch.Tensor)
        positions = [wrong_positions(*pair, self._tolerance) for pair in zip(expected, actual, strict=True)]
        elements = sum(map(len, positions))
        if any(len(places) and not want.is_floating_point() for places, want in zip(positions, expected, strict=True)):
            return _unavailable(elements, "integers and complex numbers have no bound")
        if exact is None and not self._allowances:
            return _unavailable(elements, "the reference has no float64 run")
        if exact is None:
            error = self._error_to_bound(actual, expected, expected, positions) / 2
        elif reason := self._unsound(expected, exact, positions):
            return _unavailable(elements, reason)
        else:
            self._length = self._length or reduction_length(expected, inputs, operations())
            self._widen(expected, exact, inputs)
            error = self._error_to_bound(actual, exact, expected, positions)
            self._runs += 1
        if error > 1:
            data = self._figures(elements, error)
            return Flag(FlagCode.WRONG_BY_FLOAT64, WRONG_MESSAGE.format(**data), data)
        self._beyond += elements
        self._calls += 1
        self._worst = max(self._worst, error)
        return None

    def _unsound(self, expected: Outputs, exact: Outputs, positions: list[torch.Tensor]) -> str | None:
        """Why a float64 run says nothing; None if it does."""
        if [tensor.shape for tensor in exact] != [tensor.shape for tensor in expected]:
            return "the reference's outputs differ in shape there"
        if any(len(places) and true.dtype is not torch.float64 for places, true in zip(positions, exact, strict=True)):
            return "the reference's outputs are not of that dtype there"
        rounded = [true.to(want.dtype) for true, want in zip(exact, expected, strict=True)]
        if not few_are_wrong(rounded, expected, self._tolerance):
            return "the reference is itself not within tolerance of its own run there"
        return None

    def _widen(self, expected: Outputs, exact: Outputs, inputs: Outputs) -> None:
        """Raises each output's allowance to that of this call."""
        is_float8 = any(tensor.is_floating_point() and tensor.element_size() == 1 for tensor in inputs)
        new = [
            relative_allowance(want, true, self._length, is_float8=is_float8) if want.is_floating_point() else 0.0
            for want, true in zip(expected, exact, strict=True)
        ]
        self._allowances = list(map(max, new, self._allowances or new))

    def _error_to_bound(
        self, actual: Outputs, true: Outputs, expected: Outputs, positions: list[torch.Tensor]
    ) -> float:
        """The largest error of the marked elements relative to its bound."""
        largest = 0.0
        for got, target, want, places, allowance in zip(
            actual, true, expected, positions, self._allowances, strict=True
        ):
            if len(places):
                values, targets = (tensor.reshape(-1)[places].to(torch.float64) for tensor in (got, target))
                allowed = error_bound(targets, root_mean_square(target), allowance, want.dtype)
                largest = max(largest, float(((values - targets).abs() / allowed).max()))
        return largest

    def _figures(self, elements: int, error_to_bound: float) -> dict[str, str | float | None]:
        return {"elements": elements, "error_to_bound": error_to_bound, "reduction_length": self._length}


def _unavailable(elements: int, reason: str) -> Flag:
    data: Figures = {"elements": elements, "reason": reason}
    return Flag(FlagCode.FLOAT64_UNAVAILABLE, UNAVAILABLE_MESSAGE.format(**data), data)
