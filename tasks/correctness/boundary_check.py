"""Excuses wrong elements that are no error of the kernel.

One or two of a million may have a reference value that depends on rounding alone (docs/adr/0016). Others are right in
float64 (docs/adr/0036): few of them, or those in which the reference errs.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import torch

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.kernel import KernelType
from domain.value import leaves
from domain.value import replace as replaced
from profiling.window.call_buffers import Slots
from sandbox.supervisor.session import Session
from tasks.correctness.float64_check import MOST_RUNS, Float64Check
from tasks.correctness.input_batches import Arguments
from tasks.correctness.reference_error_check import ReferenceErrorCheck
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.time_budget import TimeBudget
from validation.compare.result import CallComparison
from validation.compare.rounding_boundary import SHARE, TIED_SHARE, Outputs, explained_by_jumps, few_are_wrong
from validation.compare.ties import explain_ties
from validation.compare.tolerance import Tolerance
from validation.evidence.gradient_kinks import Differences, explained_by_kinks, first_gradient
from validation.evidence.perturbation_bound import MOST_ELEMENTS, move_size
from validation.inputs.distributions import perturbed
from validation.inputs.value_traits import ValueTraits, classify_values
from validation.seeds import derive_seed

PERTURBATIONS = tuple(
    (sign * number, factor) for number, factor in enumerate((1, 1, 1, 1, 2, 2), start=1) for sign in (1, -1)
)
"""Perturbations of the inputs, used one after the other; the last ones move by twice as much, still below the
tolerance. For calls in which a TF32 product meets a threshold, three excuse 41 of 52 and six excuse 51."""
TIE_MOVE, TIE_PERTURBATIONS = 2.0**-22, tuple((sign * number, 1) for number in range(1, 25) for sign in (1, -1))
"""The same where more elements are wrong than jumps explain, but no more than exact ties do. A tie of a number and one
of its scale have to break together: in thousands of them, one in sixty does not in six moves."""
MOST_CALLS, BUDGET_S = 1000, 15.0
"""Maximum excused calls of a job, and maximum time for them, in s. Each call costs a few float64 runs of the reference;
a call for which no time is left stays wrong."""
CALL_S = 5.0
ROUNDING_DECIDES_MESSAGE = (
    "{elements} of the compared elements, in {calls} calls, differ from the reference's, which gives them too for "
    "inputs that differ by rounding: they count as right"
)


class BoundaryExcuses:
    """Excuses calls of a comparison whose reference is written in torch, so that it can run in float64."""

    def __init__(self, reference: KernelRun, tolerance: Tolerance, matched_ratio: float) -> None:
        self._reference = reference
        self._tolerance = tolerance
        self._float64 = Float64Check(tolerance, matched_ratio)
        self._elements = 0
        self._calls = 0
        self._left_s = BUDGET_S
        self._kinks = Differences()
        self._reference_errors = ReferenceErrorCheck(tolerance, matched_ratio)
        self.failed = False

    @property
    def beyond_tolerance(self) -> list[Flag]:
        return self._float64.findings + self._reference_errors.findings

    @property
    def warning(self) -> Flag | None:
        """The sentence for the report; None if no call was excused."""
        if not self._calls:
            return None
        counts = {"elements": self._elements, "calls": self._calls}
        return Flag(FlagCode.ROUNDING_DECIDES, ROUNDING_DECIDES_MESSAGE.format(**counts), counts)

    def excuse_boundary_elements(
        self, comparisons: list[CallComparison], slots: Slots, expected: Outputs, actual: Outputs, budget: TimeBudget
    ) -> list[CallComparison]:
        """The comparisons of all calls, with those passed whose wrong elements the reference itself can produce.

        `slots` are the reference's; `expected` and `actual` are the outputs of all calls, [calls, *shape]. If one call
        cannot be excused, none is.
        """
        self._float64.count(comparisons)
        wrong = [call for call, one in enumerate(comparisons) if not one.passed]
        if any(comparisons[call].fault is not None for call in wrong):
            return comparisons
        jumps: list[int] = []
        for call in wrong:
            arguments = slots.arguments(call)
            want, got = ([stack[call] for stack in stacks] for stacks in (expected, actual))
            float64_outputs: list[Outputs] = []
            refusal = None
            # At kinks, small differences are many.
            many = self._reference.gradients is None and not few_are_wrong(want, got, self._tolerance)
            with closing(self._runs(arguments, budget, ties=many)) as runs:
                if self._float64.applies(comparisons[call], want, arguments):
                    float64_outputs = list(islice(runs, 1)) if self._float64.wants_run else []
                    operations = partial(self._operations, arguments, budget)
                    refusal = self._float64.check(want, got, arguments, next(iter(float64_outputs), None), operations)
                    if refusal is None:
                        continue
                if self._reference_errors.applies(comparisons[call], want):
                    if self._reference_errors.wants_run(want, got):
                        float64_outputs = float64_outputs or list(islice(runs, 1))
                    terms = sum(tensor.numel() for tensor in leaves(arguments, torch.Tensor))
                    rounded = partial(self._rounded, arguments, budget)
                    exact = next(iter(float64_outputs), None)
                    if self._reference_errors.excuses(comparisons[call], want, got, terms, exact, rounded):
                        continue
                share = TIED_SHARE if many else SHARE
                if self._calls + len(jumps) == MOST_CALLS or not self._explained(
                    want, got, chain(float64_outputs, runs), share
                ):
                    self._float64.refusal, self._reference_errors.refused = refusal, True
                    return comparisons
            jumps.append(call)
        self._calls += len(jumps)
        self._elements += sum(comparisons[call].mismatch_count for call in jumps)
        right = {
            call: replace(comparisons[call], mismatch_count=0, nonfinite_count=0, first_mismatch=None) for call in wrong
        }
        return [right.get(call, one) for call, one in enumerate(comparisons)]

    def _rounded(self, arguments: Arguments, budget: TimeBudget) -> Outputs | None:
        """Outputs in float64 with the source's casts to lower precisions; None if there are none."""
        session, outputs = self._reference.session, None
        if session is not None and self._left_s > 0:
            with self._until_fault(session, budget):
                outputs = session.double(arguments, rounds=True)
        return outputs

    def _explained(self, expected: Outputs, actual: Outputs, runs: Iterable[Outputs], share: float) -> bool:
        """Whether rounding explains a call's wrong elements: at jumps, or at kinks where only gradients are wrong.

        At kinks the runs of a few calls speak for those of the later ones that differ by no more than twice as much.
        """
        first = first_gradient(expected, actual, self._reference.gradients, self._tolerance)
        if first is None:
            return self._is_jump(expected, actual, runs, share)
        expected, actual = expected[first:], actual[first:]
        if self._kinks.calls >= MOST_RUNS and self._kinks.cover(expected, actual):
            return True
        explained = explained_by_kinks(actual, (run[first:] for run in runs), self._tolerance)
        if explained:
            self._kinks.widen(expected, actual)
        return explained

    def _is_jump(self, expected: Outputs, actual: Outputs, runs: Iterable[Outputs], share: float) -> bool:
        """Whether the reference itself gives every wrong element of a call for inputs that differ by rounding.

        `share` of the elements may be wrong, which has to go with the moves of the `runs`.
        """
        # A reference may select a certain one of equal values on purpose; perturbed inputs cannot show that.
        if sum(tensor.numel() for tensor in expected) > MOST_ELEMENTS or explain_ties(expected, actual):
            return False
        return few_are_wrong(expected, actual, self._tolerance, share) and explained_by_jumps(
            expected, actual, runs, self._tolerance
        )

    def _operations(self, arguments: Arguments, budget: TimeBudget) -> float:
        """Operations of one call of the reference, as torch counts them; 0 if it cannot."""
        session = self._reference.session
        if session is None or self.failed:
            return 0.0
        counted = None
        with self._until_fault(session, budget):
            counted = session.flops(arguments)
        return sum((counted or {}).values())

    @contextmanager
    def _until_fault(self, session: Session, budget: TimeBudget) -> Iterator[None]:
        """A block of requests to the reference's runner, which a fault ends.

        It gets no more requests then: later faults would not be its own.
        """
        session.set_deadline(budget.within(CALL_S))
        try:
            yield
        except KernelFault:
            self.failed = True
        finally:
            session.set_deadline(budget.deadline)

    def _runs(self, arguments: Arguments, budget: TimeBudget, *, ties: bool) -> Generator[Outputs, None, None]:
        """Outputs in float64: for the inputs, then for inputs perturbed by about a rounding step; ends at a fault.

        Work on them counts against the budget, too.
        """
        session = self._reference.session
        if session is None or self.failed or self._reference.kernel.kernel_type is not KernelType.TORCH:
            return
        if self._left_s <= 0:
            return
        by, moves = (TIE_MOVE, TIE_PERTURBATIONS) if ties else (move_size(self._tolerance, arguments), PERTURBATIONS)
        began = time.monotonic()
        kinds = [classify_values(tensor) for tensor in leaves(arguments, torch.Tensor)]
        try:
            for number, factor in ((0, 0), *moves):
                if time.monotonic() - began > self._left_s:
                    return
                outputs = None
                with self._until_fault(session, budget):
                    outputs = session.double(_perturbed(arguments, kinds, number, factor * by) if number else arguments)
                if outputs is None:
                    return
                yield outputs
        finally:
            self._left_s -= time.monotonic() - began


def _perturbed(arguments: Arguments, kinds: list[ValueTraits], number: int, by: float) -> Arguments:
    numbered = iter(enumerate(kinds))

    def move(tensor: torch.Tensor) -> torch.Tensor:
        position, kind = next(numbered)
        if not kind.continuous:
            return tensor
        seed = derive_seed(0, "edge", abs(number), position)
        # Zeros of plain random numbers move too: a normal is 0.0 once in some ten million, where `>` and `>=` differ.
        return perturbed(tensor.double(), by if number > 0 else -by, seed, zeros=kind is ValueTraits.PLAIN)

    moved: Arguments = replaced(arguments, torch.Tensor, move)
    return moved
