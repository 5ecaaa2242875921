"""Checks constant weights with other values: initial weights of a norm layer would hide a kernel that ignores them.

This is the job's last check. Both kernels get other values for such weights and run once more. A candidate that copied
its weights in its constructor answers like one that ignores them: with the first values. The referee therefore
constructs it again, with other values from the start, before it calls the candidate wrong. It does the same for a
candidate that uses the weights in another way (docs/adr/0015).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import torch

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.result import Status
from profiling.window.call_buffers import Slots
from sandbox.runner.parameter_noise import noised
from sandbox.supervisor.messages import ModelState
from tasks.correctness.input_perturbation import InputPerturbation
from tasks.correctness.trials import Trials
from tasks.correctness.weight_sync import OWN, TRY_S, Weights, listed
from tasks.runtime.kernel_run import KernelRun
from validation.compare.bitwise import identical
from validation.compare.comparison import compare
from validation.compare.result import CallComparison
from validation.evidence.perturbation_bound import Outputs
from validation.seeds import derive_seed

RUNNING_MEAN, RUNNING_VAR = "running_mean", "running_var"
"""Names of the buffers that torch's norm layers use in eval mode."""
SINGLY = 64
"""Maximum number of weights that are changed one by one, to name those that the candidate ignores."""
COPIED = (
    FlagCode.WEIGHTS_COPIED,
    "it copied them when it was constructed: constructed with other values, it agrees",
)
LEAVES_OUT = "it does not use {which}, or copied them when it was constructed; it is not known which: {why}"
MISUSES = "it uses them differently, or copied some when it was constructed; it is not known which: {why}"
USE_THEM = "Its answers are those of the first values: use the weights"
USE_RIGHT = "So it does when it is made with such: each of the weights has its place in what the reference computes"
FAILED, LACKS, LEAVES_COPIES, SAME, BY_CHANCE = (
    "constructed again, it failed",
    "constructed again, it lacks some of the weights",
    "operators or modules that its source defined in its first run might keep a copy",
    "its constructor gives them the same values each time",
    "constructed again, it differs by little, which rounding may explain",
)
SLOW = 20.0
"""A kernel is too slow for the check if this many of its calls exceed the time of all trials."""
CHANCE, CHANCE_MAX = 0.05, 0.25
"""Thresholds for the difference of outputs, as a share of what the other weights change: root mean square and maximum.
Deep layers may turn rounding errors into smaller differences."""

Finding = tuple[FlagCode, str]


class ParameterCheck:
    """The check of one job whose `weights` are shared. It adds to their findings, and a wrong output to `trials`."""

    def __init__(self, weights: Weights, trials: Trials, inputs: InputPerturbation) -> None:
        self._weights = weights
        self._trials = trials
        self._inputs = inputs
        self._secret = trials.job.secret
        self._reference, self._candidate = trials.kernel_runs
        self._first = weights.state.weights
        self._names = constant(weights.state)
        self._slots: dict[str, Slots] = {}
        self._until = 0.0
        self.kernels_intact = True
        """Whether both kernels can be called again as they were timed."""

    def run(self) -> None:
        """Run the check. If the candidate does not have all weights of the
        reference, the check cannot run, and the summary says so."""
        if self._weights.summary is None or not self._names:
            return
        if not self._weights.shared:
            which = listed([f"{name} {_value(self._first[name])}" for name in self._names])
            is_own = self._weights.summary == OWN
            why = "the candidate is wrong with copies of them" if is_own else "not all of its weights fit the candidate"
            message = (
                f"the reference's weights with one value ({which}) could not be tried with other values, as "
                f"{why}: a candidate that ignores them passes"
            )
            self._note(FlagCode.WEIGHTS_UNTESTED, message)
        elif not self._trials.budget.fits(TRY_S):
            self._weights.findings.append(Flag.of(FlagCode.CONSTANT_WEIGHTS_UNTESTED))
            if self._candidate.timing is not None:
                self._candidate.timing.flags.append(Flag.of(FlagCode.CONSTANT_WEIGHTS_UNTESTED))
        else:
            which = f"other values for those of one value ({listed(self._names)})"
            self._until = self._trials.budget.within(2 * TRY_S)
            try:
                self._note(*self._check(which))
            except KernelFault as fault:
                self.kernels_intact = False
                self._note(FlagCode.WEIGHTS_UNTESTED, f"{which} could not be tried: {fault.message}")

    def _note(self, code: FlagCode, message: str) -> None:
        self._weights.findings.append(Flag(code, message, {"constant_weights": len(self._names)}))

    def _check(self, which: str) -> Finding:
        self._slots, plain = self._trials.slots(1), self._inputs.plain()
        for role, layout in self._slots.items():
            layout.fill(0, [plain[role]])
        others = {
            name: noised(self._first[name], derive_seed(self._secret, "weights", place))
            for place, name in enumerate(self._names)
        }
        expected = self._outputs(self._reference, others)
        try:
            actual = self._outputs(self._candidate, others)
        except KernelFault as fault:
            self._fail_candidate(fault, which)
        if expected is None or actual is None:
            return FlagCode.WEIGHTS_UNTESTED, f"{which} could not be given to both"
        self._trials.fixed_outputs.see_with_other_weights(expected, self._trials.tolerance)
        if self._agree(expected, actual):
            return FlagCode.WEIGHTS_AGREE, f"with {which} both still agree"
        prefix = f"with {which} the candidate no longer agrees: "
        ignored = self._ignored_weights(others)
        used = {name: value for name, value in others.items() if name not in ignored}
        explained = ignored and self._agree(self._outputs(self._reference, used), actual)
        try:
            code, why = self._check_reconstructed(ignored) if explained else self._check_misused()
            return code, prefix + why
        finally:
            self._restore()

    def _restore(self) -> None:
        """Construct the candidate without noise: later calls must see the kernel that was timed."""
        try:
            self._load()
        except KernelFault:
            self.kernels_intact = False

    def _fail_candidate(self, fault: KernelFault, which: str) -> NoReturn:
        """Blame the candidate for failing where its reference answers, or it could avoid the check by failing. A slow
        candidate is exempt."""
        is_slow = fault.status is Status.TIMEOUT and SLOW * self._candidate.estimate_ms / 1e3 > TRY_S
        if is_slow:
            raise fault
        self._candidate.fail(KernelFault(fault.status, f"{fault.message} (with {which})", fault.log))

    def _ignored_weights(self, others: dict[str, torch.Tensor]) -> list[str]:
        """The weights whose change alone alters the reference's output, but not the candidate's."""
        before = self._outputs_of_both({})
        ignored = []
        for name in self._names[:SINGLY]:
            if time.monotonic() > self._until - TRY_S:
                break  # If there are more, those found so far do not explain the whole difference.
            after = self._outputs_of_both({name: others[name]})
            reference_agrees, candidate_agrees = (self._agree(*answers) for answers in zip(before, after, strict=True))
            if candidate_agrees and not reference_agrees:
                ignored.append(name)
        return ignored

    def _check_reconstructed(self, names: Sequence[str]) -> Finding:
        """Construct the candidate with other values for `names`, and say what it does; it is right if both agree then.

        It ignores the weights if its output equals the reference's output under the first values. A second pass puts
        noise on all constant tensors of its constructor, from which it may have copied its parameters. In any other
        case there is no verdict, nor if its first load may have left copies behind.
        """
        wrong: CallComparison | None = None
        for all_constants in (False, True):
            reconstructed = self._reconstruct(names, all_constants=all_constants)
            if isinstance(reconstructed, str):
                return FlagCode.WEIGHTS_INCONCLUSIVE, LEAVES_OUT.format(which=listed(names), why=reconstructed)
            weights, actual = reconstructed
            expected = self._outputs(self._reference, weights)
            without = self._outputs(self._reference, weights | {name: self._first[name] for name in names})
            if wrong is not None and self._agree(expected, without):
                break  # Other weights were computed from these constants, so the change has no effect.
            if self._agree(expected, actual):
                return COPIED
            if expected is None or not self._agree(without, actual):
                return self._check_misused()
            wrong = wrong or _wrong(names, compare(expected, actual, self._trials.tolerance))
        if wrong is not None:
            self._trials.note(wrong)
        return FlagCode.WEIGHTS_IGNORED, f"it does not use {listed(names)}"

    def _check_misused(self) -> Finding:
        """The same for a candidate whose output matches neither. It is wrong if it differs in both passes by a large
        share of what the weights change, whatever it does with them."""
        wrong: CallComparison | None = None
        for all_constants in (False, True):
            reconstructed = self._reconstruct(self._names, all_constants=all_constants)
            if isinstance(reconstructed, str):
                return FlagCode.WEIGHTS_INCONCLUSIVE, MISUSES.format(why=reconstructed)
            weights, actual = reconstructed
            expected, before = self._outputs(self._reference, weights), self._outputs(self._reference)
            if self._agree(expected, actual):
                return COPIED
            if expected is None or before is None or not _differs_by_much(expected, actual, before):
                return FlagCode.WEIGHTS_INCONCLUSIVE, MISUSES.format(why=BY_CHANCE)
            wrong = wrong or _wrong(self._names, compare(expected, actual, self._trials.tolerance), USE_RIGHT)
        if wrong is not None:
            self._trials.note(wrong)
        return FlagCode.WEIGHTS_USED_DIFFERENTLY, "it uses them differently"

    def _reconstruct(self, names: Sequence[str], *, all_constants: bool) -> tuple[dict[str, Any], Outputs] | str:
        """The weights and outputs of the candidate, constructed with other values for `names`, or why not."""
        try:
            weights = self._load(derive_seed(self._secret, "weights", "anew"), all_constants=all_constants)
            actual = self._outputs(self._candidate)
        except KernelFault:
            return FAILED
        # The candidate reports its weights itself; the comparison shows how it uses them.
        if isinstance(weights, str) or actual is None:
            return weights if isinstance(weights, str) else FAILED
        return SAME if any(identical(weights[name], self._first[name]) for name in names) else (weights, actual)

    def _load(self, noise: int | None = None, *, all_constants: bool = False) -> dict[str, Any] | str:
        """Construct the candidate again; returns its values of the reference's weights, or why they show nothing."""
        candidate, session = self._candidate, self._candidate.open_session
        session.set_deadline(self._until)
        loaded = session.load(
            candidate.kernel,
            candidate.build.artifact,
            candidate.borrowed,
            self._trials.job.weights_seed,
            noise=noise,
            all_constants=all_constants,
            draw_on=candidate.loaded.constructed_on if candidate.loaded is not None else None,
        )
        weights = session.state().weights
        if loaded.left_state:
            return LEAVES_COPIES
        complete = all(isinstance(weights.get(name), torch.Tensor) for name in self._first)
        return {name: weights[name] for name in self._first} if complete else LACKS

    def _agree(self, expected: Outputs | None, actual: Outputs | None) -> bool:
        if expected is None or actual is None:
            return False
        return compare(expected, actual, self._trials.tolerance).passed

    def _outputs_of_both(self, others: dict[str, Any]) -> list[Outputs | None]:
        return [self._outputs(kernel_run, others) for kernel_run in self._trials.kernel_runs]

    def _outputs(self, kernel_run: KernelRun, others: dict[str, Any] | None = None) -> Outputs | None:
        """The outputs of one call on the inputs as drawn, with those weights; None if the kernel refuses them."""
        session, layout = kernel_run.open_session, self._slots[kernel_run.role]
        session.set_deadline(self._until)
        if others and not session.load_state(others):
            return None
        try:
            window = kernel_run.open_window_session.window(layout)
            return layout.read(window.snapshot)[0]
        finally:
            # The later float64 run is compared with outputs under the first weights.
            if others:
                with suppress(KernelFault):  # A runner that has ended gets no later request either.
                    session.load_state({name: self._first[name] for name in others})


def _differs_by_much(expected: Outputs, actual: Outputs, before: Outputs) -> bool:
    """Whether outputs differ by more than a share of what the other weights changed, relative to `before`."""
    for want, got, first in zip(expected, actual, before, strict=True):
        wide = torch.complex128 if want.is_complex() else torch.float64
        off, changed = (other.to(wide).sub(want.to(wide)).reshape(-1) for other in (got, first))
        for order, share in ((2, CHANCE), (math.inf, CHANCE_MAX)):
            # A comparison with NaN is false.
            if torch.linalg.vector_norm(off, order) > share * torch.linalg.vector_norm(changed, order):
                return True
    return False


def _wrong(names: Sequence[str], comparison: CallComparison, advice: str = USE_THEM) -> CallComparison:
    first = "first at output {output}, index {index}: expected {expected}, got {actual}".format(
        **(comparison.first_mismatch or {})
    )
    sentence = (
        f"Wrong with other values for weights that have one ({listed(names)}): {comparison.mismatch_count} of "
        f"{comparison.element_count} elements, {first}. {advice}"
    )
    return replace(comparison, fault=sentence)


def _value(weight: torch.Tensor) -> str:
    value = float(weight.reshape(-1)[0])
    word = {0.0: "zero", 1.0: "one"}.get(value)
    return f"{value:.3g}" if word is None else word + "s" * (weight.numel() > 1)


def constant(state: ModelState) -> list[str]:
    """Floating parameters, and running statistics by their name, whose elements are all equal after construction."""
    return [
        name
        for name, weight in state.weights.items()
        if weight.is_floating_point() and weight.numel() > 0 and _is_constant(name, weight, name in state.parameters)
    ]


def _is_constant(name: str, weight: torch.Tensor, is_parameter: bool) -> bool:
    first = weight.reshape(-1)[0]
    if not bool((weight == first).all()):
        return False
    if is_parameter:
        return True
    suffix = name.rpartition(".")[2]
    return suffix == RUNNING_MEAN or (suffix == RUNNING_VAR and float(first) > 0)  # A variance stays positive.
