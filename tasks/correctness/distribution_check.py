"""Checks whether both kernels agree on further distributions of inputs, a grade at a time.

The referee runs it after the timing, with one call per distribution, so that a reference that fails there costs the job
nothing. A difference counts against the candidate only with evidence that the reference is right there
(`validation/evidence/perturbation_bound.py`, docs/adr/0014). It is the verdict, or stands beside it, by the grade of
the inputs and the request's strictness (docs/adr/0035).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.kernel import KernelType
from domain.result import RobustnessFailure, Status
from profiling.window.call_buffers import Slots, bytes_per_call
from tasks.correctness.boundary_check import PERTURBATIONS
from tasks.correctness.input_perturbation import InputPerturbation
from tasks.correctness.trials import Outputs, Trials
from tasks.correctness.write_checks import check_guards
from tasks.runtime.freeze import frozen
from tasks.runtime.kernel_run import KernelRun
from validation.compare.comparison import compare
from validation.compare.result import CallComparison
from validation.compare.rounding_boundary import explained_by_jumps, few_enough
from validation.compare.tolerance import Tolerance
from validation.evidence.gradient_kinks import explained_by_kinks, first_gradient
from validation.evidence.perturbation_bound import MOVE_SIGNS, NoiseCheck, check_against_noise, move_size
from validation.evidence.small_outputs import scaled_atols
from validation.inputs.distributions import DISTRIBUTIONS, DRAWN, Distribution

CALL_S, CALL_FACTOR = 2.0, 20.0
"""Maximum seconds of one call or float64 run: CALL_S plus CALL_FACTOR times the estimated time of a call."""
CONTROLS = 4
"""Independent sets, and plain ones in between, that show whether inputs depend on each other: one order of 70."""
BUDGET_S = 3.0
"""Maximum seconds of the distributions that decide the verdict, and again of the others."""
ROUNDING_ATOL = 4 * torch.finfo(torch.float32).eps
"""Outputs as small as that may be rounding errors of zero, as in the mean of normalised rows."""
FURTHER = [(number, factor) for number, factor in PERTURBATIONS if number not in MOVE_SIGNS]
NOTHING_MOVES = Flag(FlagCode.DISTRIBUTION_INPUTS_UNCHANGED, "rounding would turn every input into another one")
OUT_OF_TIME = frozenset({FlagCode.DISTRIBUTION_TIMEOUT, FlagCode.DISTRIBUTION_TIME_LIMIT})


@dataclass(frozen=True)
class DistributionSummary:
    """The report's `inputs.distributions`: those checked, why others were not, and why inputs stayed as drawn."""

    checked: list[str] = field(default_factory=list)
    skipped: dict[str, Flag] = field(default_factory=dict)
    unmodified_inputs: dict[str, str] = field(default_factory=dict)


class DistributionCheck:
    """Runs on the runners of validated trials; `summary` says what came of it."""

    def __init__(self, trials: Trials, inputs: InputPerturbation) -> None:
        self._trials = trials
        self._inputs = inputs
        self._reference, self._candidate = trials.kernel_runs
        self._slots: dict[str, Slots] = {}
        # Compare each element by itself: a large outlier must not raise the tolerance of the rest.
        self._plain = Tolerance(trials.tolerance.atol, trials.tolerance.rtol)
        self._call_s = CALL_S + CALL_FACTOR * max(kernel_run.estimate_ms for kernel_run in trials.kernel_runs) / 1e3
        self._own_atols = scaled_atols(trials.reference_outputs, trials.tolerance)
        self._until = 0.0
        self._has_failed = False
        self._depend_on_each_other: dict[tuple[bool, ...], bool] = {}
        self._checked: list[str] = []
        self._skipped: dict[str, Flag] = {}

    @property
    def summary(self) -> DistributionSummary:
        """The distributions that were checked until now."""
        unchanged = {} if self._too_large() else self._inputs.unchanged
        return DistributionSummary(self._checked, self._skipped, unchanged)

    def run(self, *, deciding: bool, kernels_intact: bool = True) -> None:
        """Compare on every distribution that decides the verdict, or on every other one.

        Stops at the first failure that is the verdict, and where the candidate's runner fails. Skips all where another
        check has left the kernels other than they were timed.
        """
        # First, since finding structure draws further sets, which takes none of the budget.
        chosen = [one for one in DISTRIBUTIONS if self._decides(one) is deciding and self._applies(one)]
        self._until = time.monotonic() + BUDGET_S
        self._has_failed = self._has_failed or not kernels_intact
        too_large = self._too_large()
        for distribution in chosen:
            why = too_large or self._unchanged(distribution) or self._stopped()
            self._skipped |= self._check(distribution) if why is None else {distribution.name: why}
        mild = [distribution.name for distribution in DISTRIBUTIONS if not distribution.harsh]
        if any(name in self._skipped and self._skipped[name].code in OUT_OF_TIME for name in mild):
            self._trials.fixed_outputs.give_up()

    def _decides(self, distribution: Distribution) -> bool:
        return self._trials.request.strictness.decides_on(distribution.grade)

    def _applies(self, distribution: Distribution) -> bool:
        """Whether to report on it at all: some are for a kind of outputs or inputs that few tasks have."""
        if distribution is DRAWN:
            return self._own_atols is not None
        return distribution.change is not None or (not self._too_large() and self._inputs.some_may_change(distribution))

    def _unchanged(self, distribution: Distribution) -> Flag | None:
        if distribution is DRAWN:
            return None if self._inputs.some_move else NOTHING_MOVES
        return None if self._inputs.some_may_change(distribution) else Flag.of(FlagCode.DISTRIBUTION_INPUTS_UNCHANGED)

    def _too_large(self) -> Flag | None:
        # Only the reference's inputs count: a candidate must not avoid the check by a contract with large inputs.
        too_large = bytes_per_call(self._trials.example[self._reference.role], []) > self._trials.memory()
        return Flag.of(FlagCode.DISTRIBUTION_INPUTS_TOO_LARGE) if too_large else None

    def _stopped(self) -> Flag | None:
        """Why no further distribution can be checked; None if one can."""
        now = time.monotonic()
        if not self._trials.right:
            return Flag(FlagCode.DISTRIBUTION_KERNEL_FAILED, "the kernel was wrong before")
        if self._has_failed:
            return Flag(FlagCode.DISTRIBUTION_KERNEL_FAILED, "the kernel had failed before")
        if not self._trials.budget.fits(2 * self._call_s):
            return Flag.of(FlagCode.DISTRIBUTION_TIMEOUT)
        spent = Flag.of(FlagCode.DISTRIBUTION_TIME_LIMIT, limit_s=BUDGET_S)
        return spent if now > self._until else None

    def _check(self, distribution: Distribution) -> dict[str, Flag]:
        self._fill(self._inputs.of(distribution))
        try:
            expected = self._outputs(self._reference)
        except KernelFault as fault:
            message = f"the reference failed on it: {fault.message}"
            return {distribution.name: Flag(FlagCode.DISTRIBUTION_REFERENCE_UNSOUND, message)}
        if distribution is DRAWN or not distribution.harsh:  # On harsh ones a difference may not count as wrong.
            # A mean of normalised rows is all rounding: on shifted rows it is off by more than its own size.
            tolerances = self._tolerances(DRAWN, expected) if distribution is DRAWN else [self._plain] * len(expected)
            least = [replace(tolerance, atol=max(tolerance.atol, ROUNDING_ATOL)) for tolerance in tolerances]
            self._trials.fixed_outputs.see(expected, least, drawn=False)
        failure, actual = None, None
        began = time.monotonic()
        try:
            actual = self._outputs(self._candidate)
        except KernelFault as fault:
            failure = fault
        # The call has a limit of its own and does not count: a slow kernel must not escape the other distributions.
        self._until += time.monotonic() - began
        if actual is not None and self._agree(distribution, expected, actual):
            self._checked.append(distribution.name)
            return {}
        evidence, ran_in_float64 = self._examine(distribution, expected, actual)
        if failure is not None:
            self._has_failed = True  # A runner that failed gets no more requests, whoever caused it.
            if evidence.unsound is None and (ran_in_float64 or not distribution.harsh):
                self._note_failure(distribution, failure)
                return {}
            message = f"the kernel failed on it ({failure.message}); {_lack_of_evidence(evidence)}"
            return {distribution.name: Flag(FlagCode.DISTRIBUTION_KERNEL_FAILED, message)}
        why = self._no_evidence(distribution, evidence, ran_in_float64=ran_in_float64)
        if why is not None:
            return {distribution.name: why}
        self._checked.append(distribution.name)
        if evidence.wrong:
            if distribution.harsh and not ran_in_float64:
                evidence = replace(evidence, wrong=evidence.not_finite)
            self._note_wrong(distribution, evidence, expected)
        return {}

    def _note_failure(self, distribution: Distribution, fault: KernelFault) -> None:
        """Record that the candidate failed. Raises Stopped if that is the verdict."""
        message = f"{fault.message} (on {distribution.name} inputs, where the reference is right)"
        if self._decides(distribution):
            self._candidate.fail(KernelFault(fault.status, message, fault.log, compiled=fault.compiled))
        self._checked.append(distribution.name)
        self._trials.note_robustness_failure(RobustnessFailure(distribution.name, fault.status, message))

    def _note_wrong(self, distribution: Distribution, evidence: NoiseCheck, expected: Outputs) -> None:
        wrong = _wrong(distribution, evidence, expected, self._trials.tolerance)
        if self._decides(distribution):
            self._trials.note(wrong)
        else:
            members = (evidence.wrong, evidence.judged, evidence.first)
            failure = RobustnessFailure(distribution.name, Status.WRONG_RESULT, wrong.fault or "", *members)
            self._trials.note_robustness_failure(failure)

    def _no_evidence(self, distribution: Distribution, evidence: NoiseCheck, *, ran_in_float64: bool) -> Flag | None:
        """Why the difference is no evidence against the candidate; None if it is."""
        if evidence.unsound is not None:
            return Flag(FlagCode.DISTRIBUTION_REFERENCE_UNSOUND, evidence.unsound)
        if evidence.wrong and self._inputs_depend_on_each_other(distribution):
            return Flag.of(FlagCode.DISTRIBUTION_INPUTS_RELATED)
        # A NaN where every run of the reference has a number is evidence even without a float64 run.
        needs_exact = distribution.harsh and (distribution.tied or not evidence.not_finite)
        if not (evidence.wrong and needs_exact) or ran_in_float64:
            return None
        message = f"{evidence.wrong} elements differ; {_lack_of_evidence(evidence)}"
        return Flag(FlagCode.DISTRIBUTION_NO_FLOAT64, message, {"elements": evidence.wrong})

    def _inputs_depend_on_each_other(self, distribution: Distribution) -> bool:
        """Whether the kernels also differ if every input comes from another drawn set, with the elements of those that
        the distribution changes in other places; tested once for the same ones.
        """
        changed = self._inputs.changed_inputs(distribution)
        if changed not in self._depend_on_each_other:
            self._depend_on_each_other[changed] = self._differ_when_independent(distribution)
        return self._depend_on_each_other[changed]

    def _differ_when_independent(self, distribution: Distribution) -> bool:
        """Whether each independent set has more wrong elements than each plain one, which come in a random order.

        A kernel that errs on purpose after a varied set has to guess the order: each input of both kinds has its usual
        distribution.
        """
        most, fewest = 0, sum(tensor.numel() for tensor in self._trials.reference_outputs)
        for is_plain in control_order():
            arguments = None
            try:
                self._reference.open_session.set_deadline(self._latest())
                arguments = self._inputs.another() if is_plain else self._inputs.independent(distribution)
                if arguments is None:
                    return False
                self._fill(arguments)
                expected, actual = self._outputs(self._reference), self._outputs(self._candidate)
            except KernelFault:
                self._has_failed = True
                return arguments is not None and not is_plain
            compared = compare(expected, actual, self._trials.tolerance)
            wrong = compared.mismatch_count if compared.fault is None else compared.element_count
            most, fewest = (max(most, wrong), fewest) if is_plain else (most, min(fewest, wrong))
            if fewest <= most:
                return False
        return True

    def _atols(self, distribution: Distribution, expected: Outputs) -> list[float] | None:
        """Tolerances scaled to each output's size, where the default one cannot judge the task's outputs; else None.

        Harsh inputs have none: their outputs may be small for other reasons.
        """
        if distribution is DRAWN or self._own_atols is None:
            return self._own_atols
        return None if distribution.harsh else scaled_atols(expected, self._trials.tolerance)

    def _agree(self, distribution: Distribution, expected: Outputs, actual: Outputs) -> bool:
        if self._atols(distribution, expected) is None:
            return compare(expected, actual, self._plain).passed
        three = zip(expected, actual, self._tolerances(distribution, expected), strict=True)
        return all(compare([want], [got], tolerance).passed for want, got, tolerance in three)

    def _tolerances(self, distribution: Distribution, expected: Outputs) -> list[Tolerance]:
        atols = self._atols(distribution, expected)
        return [self._plain] * len(expected) if atols is None else [replace(self._plain, atol=atol) for atol in atols]

    def _examine(
        self, distribution: Distribution, expected: Outputs, actual: Outputs | None
    ) -> tuple[NoiseCheck, bool]:
        """The evidence against the candidate, and whether the reference ran in float64 for it."""
        by = move_size(self._trials.tolerance, self._slots[self._reference.role].arguments(0))
        try:
            exact = self._run_in_float64(distribution, 0, 0.0)
            if exact is not None:
                moves = [self._run_in_float64(distribution, number, by) or [] for number in MOVE_SIGNS]
            else:
                moves = [self._run_perturbed(distribution, number, by) for number in MOVE_SIGNS]
        except KernelFault as fault:
            return NoiseCheck(unsound=f"the reference failed on inputs that differ by rounding: {fault.message}"), False
        evidence = self._evidence(distribution, expected, actual, exact, moves, by)
        if (
            exact is None
            or actual is None
            or not evidence.wrong
            or not few_enough(evidence.wrong, evidence.rows, expected)
        ):
            return evidence, exact is not None
        # A few elements may have moved too little by chance; where the reference jumps, either side is right (ADR 16).
        more = list(self._further_runs(distribution, by))
        moves += [run for factor, run in more if factor == 1]
        evidence = self._evidence(distribution, expected, actual, exact, moves, by)
        atols = self._atols(distribution, expected)
        tolerance = self._trials.tolerance if atols is None else replace(self._plain, atol=min(atols))
        runs = [exact, *moves, *(run for factor, run in more if factor > 1)]
        if evidence.wrong and (
            explained_by_jumps(expected, actual, runs, tolerance)
            or self._flip_at_kinks(expected, actual, runs, tolerance)
        ):
            evidence = replace(evidence, wrong=0, rows=0, first=None)
        return evidence, True

    def _flip_at_kinks(self, expected: Outputs, actual: Outputs, runs: list[Outputs], tolerance: Tolerance) -> bool:
        """Whether gradients alone are wrong, as they jump where rounding chooses a side of relu's zero.

        Moved inputs flip such an element by chance: of 1500 right TF32 products before a relu 23 stayed wrong without
        this, and 5 with it.
        """
        first = first_gradient(expected, actual, self._reference.gradients, tolerance)
        return first is not None and explained_by_kinks(actual[first:], (run[first:] for run in runs), tolerance)

    def _further_runs(self, distribution: Distribution, by: float) -> Iterator[tuple[float, Outputs]]:
        """Outputs for further perturbed inputs, each with its factor, as long as time is left."""
        with suppress(KernelFault):  # The evidence found before stays valid.
            for number, factor in FURTHER:
                if time.monotonic() > min(self._until, self._trials.budget.deadline - 2 * self._call_s):
                    return
                run = self._run_in_float64(distribution, number, factor * by)
                if run is None:
                    return
                yield factor, run

    def _evidence(
        self,
        distribution: Distribution,
        expected: Outputs,
        actual: Outputs | None,
        exact: Outputs | None,
        moves: list[Outputs],
        by: float,
    ) -> NoiseCheck:
        options: dict[str, Any] = {"tied": distribution.tied, "atols": self._atols(distribution, expected)}
        if exact is not None:  # Moved runs in the inputs' own precision round as coarsely as the inputs do.
            options["moved_by"] = by
        return check_against_noise(expected, actual, exact, moves, self._trials.tolerance, **options)

    def _run_in_float64(self, distribution: Distribution, number: int, by: float) -> Outputs | None:
        """One call of the reference in float64; None if it cannot run so."""
        session = self._reference.session
        if session is None or self._reference.kernel.kernel_type is not KernelType.TORCH:
            return None
        session.set_deadline(self._latest())
        moved = self._inputs.for_reference(distribution, number, by, double=True)
        with self._on_time(self._reference):
            return session.double(moved)

    def _run_perturbed(self, distribution: Distribution, number: int, by: float) -> Outputs:
        """One call of the reference on perturbed inputs, in its own precision."""
        moved = self._inputs.for_reference(distribution, number, by, double=False)
        self._slots[self._reference.role].fill(0, [moved])
        return self._outputs(self._reference)

    def _fill(self, arguments: dict[str, list[Any]]) -> None:
        if not self._slots:
            self._slots = self._trials.slots(1)
        for role, layout in self._slots.items():
            layout.fill(0, [arguments[role]])

    def _outputs(self, kernel_run: KernelRun) -> Outputs:
        """One call on the inputs in the kernel's slot; raises KernelFault."""
        kernel_run.open_session.set_deadline(self._latest())
        slots = self._slots[kernel_run.role]
        with self._on_time(kernel_run):
            window = kernel_run.open_window_session.window(slots)
        check_guards(slots, window)
        return slots.read(window.snapshot)[0]

    def _on_time(self, kernel_run: KernelRun) -> AbstractContextManager[None]:
        """On a CPU, stops the candidate while its reference runs: it could make that miss its time, and avoid the
        check."""
        return frozen(None if self._trials.worker.device.is_cuda else kernel_run.candidate)

    def _latest(self) -> float:
        return self._trials.budget.within(self._call_s)


def control_order() -> list[bool]:
    """Whether each control in turn is plain.

    A kernel that fails gets no more controls, and some related inputs make a right one fail. One that fails on purpose
    has to guess how many plain ones come first: at best it does so once in 2 * CONTROLS.
    """
    shuffled = secrets.SystemRandom().sample([True, False] * CONTROLS, 2 * CONTROLS)
    return [True] * secrets.randbelow(2 * CONTROLS) + shuffled


def untried(why: Flag) -> DistributionSummary:
    """The summary if the check could not run at all."""
    return DistributionSummary(skipped={one.name: why for one in DISTRIBUTIONS if one.change is not None})


def _lack_of_evidence(evidence: NoiseCheck) -> str:
    return evidence.unsound or "without a float64 run of the reference that is no evidence against it"


def _wrong(distribution: Distribution, evidence: NoiseCheck, expected: Outputs, tolerance: Tolerance) -> CallComparison:
    first = "first at output {output}, index {index}: expected {expected}, got {actual}".format(
        **(evidence.first or {})
    )
    sentence = (
        f"Wrong on {distribution.name} inputs ({distribution.description}): {evidence.wrong} of {evidence.judged} "
        f"elements, of which {evidence.not_finite} are NaN or infinite; {first}"
    )
    return CallComparison(
        tolerance,
        sum(tensor.numel() for tensor in expected),
        mismatch_count=evidence.wrong,
        nonfinite_count=evidence.not_finite,
        strict_mismatch_count=evidence.wrong,
        relative_rms_error=None,
        first_mismatch=evidence.first,
        fault=sentence,
    )
