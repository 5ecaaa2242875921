"""Other values for weights that all have one, as a new norm layer's: a kernel that leaves those out is right without.

Both contenders are given them, last of all, and called once more. A candidate that packed its weights when it was made
has not seen them either, and answers as one that leaves them out does: under the first ones. So it is made anew, with
such values from the start, before it is called wrong; and so is who uses them otherwise (docs/adr/0009).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import torch

from domain.fault import KernelFault, NotStill
from domain.flags import TIMEOUT_NEAR
from domain.result import Status
from profiling.window.call_buffers import Slots
from sandbox.runner.parameter_noise import noised
from sandbox.supervisor.messages import State
from tasks.correctness.input_perturbation import VariedInputs
from tasks.correctness.trials import Rounds
from tasks.correctness.weight_sync import TRY_S, Weights, listed
from tasks.runtime.freeze import undisturbed_window
from tasks.runtime.kernel_run import KernelRun
from validation.compare.bitwise import identical
from validation.compare.comparison import compare
from validation.compare.result import CallComparison
from validation.evidence.perturbation_bound import Outputs
from validation.seeds import derived

RUNNING_MEAN, RUNNING_VAR = "running_mean", "running_var"
"""What torch's norm layers call the buffers that they compute with in eval mode."""
SINGLY = 64
"""So many are tried one by one, to name what is left out."""
COPIED = "it copied them when it was made, as it does agree when it is made with such"
LEAVES_OUT = "it leaves {which} out, or copied that when it was made, which was not found out: {why}"
USES_OTHERWISE = "it uses them otherwise, or copied some when it was made, which was not found out: {why}"
UNTRIED = (
    f"weights of one value were not tried with others, as {TIMEOUT_NEAR}: a kernel that ignores them is not told from "
    "one that uses them"
)
USE_THEM = "Its answers are those of the first values: use the weights"
USE_RIGHT = "So it does when it is made with such: each of the weights has its place in what the reference computes"
FAILED, LACKS, KEPT, SAME, BY_CHANCE = (
    "made anew it failed",
    "made anew it lacks some of the weights",
    "what its source has left behind when it was first run, operators or modules, might keep a copy",
    "its constructor gives them the same values each time",
    "made anew it differs by little, which rounding may do",
)
SLOW = 20.0
"""So many of its calls take longer than all that is tried may."""
CHANCE, CHANCE_AT_MOST = 0.05, 0.25
"""Where answers differ by less than that share of what the other weights change, on average and at most, deep layers
may have made it of rounding."""


class OtherWeights:
    """Of one job, whose `weights` are shared. What was found is added to their summary, and to `rounds` a wrong answer.

    `seed` is what both were made under.
    """

    def __init__(self, weights: Weights, rounds: Rounds, inputs: VariedInputs, secret: int, seed: int) -> None:
        self._weights = weights
        self._rounds = rounds
        self._inputs = inputs
        self._secret = secret
        self._seed = seed
        self._reference, self._candidate = rounds.contenders
        self._first = weights.state.weights
        self._names = constant(weights.state)
        self._slots: dict[str, Slots] = {}
        self._until = 0.0

    def judge(self) -> None:
        """The last thing asked of both runners. Where the candidate has not all of the reference's, none can be tried,
        and that is said."""
        if self._weights.summary is None or not self._names:
            return
        if not self._weights.shared:
            which = listed([f"{name} {_value(self._first[name])}" for name in self._names])
            self._say(
                f"the reference's of one value ({which}) could not be tried with others, as not all of its weights fit "
                "the candidate: one that ignores them is not told from one that uses them"
            )
        elif time.monotonic() + TRY_S > self._rounds.deadline:
            self._say(UNTRIED)
            if self._candidate.timing is not None:
                self._candidate.timing.flags.append(UNTRIED)
        else:
            which = f"other values for those of one value ({listed(self._names)})"
            self._until = min(self._rounds.deadline, time.monotonic() + 2 * TRY_S)
            try:
                self._say(self._tried(which))
            except KernelFault as fault:
                self._say(f"{which} could not be tried: {fault.message}")

    def _say(self, what: str) -> None:
        self._weights.summary = f"{self._weights.summary}; {what}"

    def _tried(self, which: str) -> str:
        self._slots, plain = self._rounds.slots(1), self._inputs.plain()
        for role, layout in self._slots.items():
            layout.fill(0, [plain[role]])
        others = {
            name: noised(self._first[name], derived(self._secret, "weights", place))
            for place, name in enumerate(self._names)
        }
        expected = self._answer(self._reference, others)
        try:
            actual = self._answer(self._candidate, others)
        except KernelFault as fault:
            self._accuse(fault, which)
        if expected is None or actual is None:
            return f"{which} could not be given to both"
        if self._agree(expected, actual):
            return f"with {which} both still agree"
        told = f"with {which} the candidate no longer agrees: "
        left_out = self._left_out(others)
        kept = {name: value for name, value in others.items() if name not in left_out}
        explained = left_out and self._agree(self._answer(self._reference, kept), actual)
        try:
            return told + (self._made_anew(left_out) if explained else self._made_anew_otherwise())
        finally:
            if self._rounds.request.profile:  # Of what was timed, and not of what has noise.
                with suppress(KernelFault):
                    self._load()

    def _accuse(self, fault: KernelFault, which: str) -> NoReturn:
        """Of failing where its reference answers: that would be the way out else. A slow one is let off, and whoever
        may not have stood still."""
        is_slow = fault.status is Status.TIMEOUT and SLOW * self._candidate.estimate_ms / 1e3 > TRY_S
        if isinstance(fault, NotStill) or is_slow:
            raise fault
        self._candidate.fail(KernelFault(fault.status, f"{fault.message} (with {which})", fault.log))

    def _left_out(self, others: dict[str, torch.Tensor]) -> list[str]:
        """Those with which alone the reference answers otherwise, and the candidate does not."""
        before = self._both({})
        found = []
        for name in self._names[:SINGLY]:
            if time.monotonic() > self._until - TRY_S:
                break  # What is found so far explains less than all of it, if there is more.
            after = self._both({name: others[name]})
            theirs, ours = (self._agree(*answers) for answers in zip(before, after, strict=True))
            if ours and not theirs:
                found.append(name)
        return found

    def _made_anew(self, names: Sequence[str]) -> str:
        """What is found of a candidate that is made with other values: where both agree under those, it is right.

        If it answers as the reference would with the first ones, it leaves them out; made once more with noise on all
        constant tensors of its constructor, as it may have copied what it made its parameters of. Else there is no
        verdict, nor where its first load may have left copies behind.
        """
        wrong: CallComparison | None = None
        for widely in (False, True):
            anew = self._anew(names, widely=widely)
            if isinstance(anew, str):
                return LEAVES_OUT.format(which=listed(names), why=anew)
            made, actual = anew
            expected = self._answer(self._reference, made)
            without = self._answer(self._reference, made | {name: self._first[name] for name in names})
            if wrong is not None and self._agree(expected, without):
                break  # So that nothing shows: of these constants others were computed.
            if self._agree(expected, actual):
                return COPIED
            if expected is None or not self._agree(without, actual):
                return self._made_anew_otherwise()
            wrong = wrong or _wrong(names, compare(expected, actual, self._rounds.tolerance))
        if wrong is not None:
            self._rounds.note(wrong)
        return f"it leaves {listed(names)} out"

    def _made_anew_otherwise(self) -> str:
        """The same of one that answers neither as the reference does nor without some of them: wrong where it differs
        by much of what they change, both times, whatever it does with them."""
        wrong: CallComparison | None = None
        for widely in (False, True):
            anew = self._anew(self._names, widely=widely)
            if isinstance(anew, str):
                return USES_OTHERWISE.format(why=anew)
            made, actual = anew
            expected, before = self._answer(self._reference, made), self._answer(self._reference)
            if self._agree(expected, actual):
                return COPIED
            if expected is None or before is None or not _much(expected, actual, before):
                return USES_OTHERWISE.format(why=BY_CHANCE)
            wrong = wrong or _wrong(self._names, compare(expected, actual, self._rounds.tolerance), USE_RIGHT)
        if wrong is not None:
            self._rounds.note(wrong)
        return "it uses them otherwise"

    def _anew(self, names: Sequence[str], *, widely: bool) -> tuple[dict[str, Any], Outputs] | str:
        """What the candidate has and answers when it is made with others for those; or why that tells nothing."""
        try:
            made = self._load(derived(self._secret, "weights", "anew"), widely=widely)
            actual = self._answer(self._candidate)
        except KernelFault:
            return FAILED
        # Those that it has are its own word. What it does with them is seen.
        if isinstance(made, str) or actual is None:
            return made if isinstance(made, str) else FAILED
        return SAME if any(identical(made[name], self._first[name]) for name in names) else (made, actual)

    def _load(self, noise: int | None = None, *, widely: bool = False) -> dict[str, Any] | str:
        """Makes the candidate anew; what it has of the reference's weights then, or why that tells nothing."""
        candidate, session = self._candidate, self._candidate.open_session
        session.runner.deadline = self._until
        init = self._reference.loaded.init if self._reference.loaded is not None else None
        loaded = session.load(candidate.kernel, candidate.artifact, init, self._seed, noise=noise, widely=widely)
        made = session.state().weights
        if loaded.keeps:
            return KEPT
        known = all(isinstance(made.get(name), torch.Tensor) for name in self._first)
        return {name: made[name] for name in self._first} if known else LACKS

    def _agree(self, expected: Outputs | None, actual: Outputs | None) -> bool:
        if expected is None or actual is None:
            return False
        return compare(expected, actual, self._rounds.tolerance).passed

    def _both(self, others: dict[str, Any]) -> list[Outputs | None]:
        return [self._answer(contender, others) for contender in self._rounds.contenders]

    def _answer(self, contender: KernelRun, others: dict[str, Any] | None = None) -> Outputs | None:
        """To one call on the inputs as they were drawn, with those weights; None where it does not take them."""
        session, layout = contender.open_session, self._slots[contender.role]
        session.runner.deadline = self._until
        if others and not session.load_state(others):
            return None
        try:
            window = undisturbed_window(contender, self._rounds.contenders, layout, self._rounds.bench.device)
            return layout.read(window.snapshot)[0]
        finally:
            # What is asked after this (the run in float64) is compared with answers under the first ones.
            if others:
                with suppress(KernelFault):  # A runner that is gone is not asked either.
                    session.load_state({name: self._first[name] for name in others})


def _much(expected: Outputs, actual: Outputs, before: Outputs) -> bool:
    """Whether an answer is off by more than a share of what other weights change of the one `before`."""
    for want, got, first in zip(expected, actual, before, strict=True):
        wide = torch.complex128 if want.is_complex() else torch.float64
        off, changed = (other.to(wide).sub(want.to(wide)).reshape(-1) for other in (got, first))
        for order, share in ((2, CHANCE), (math.inf, CHANCE_AT_MOST)):
            # Never where either is no number.
            if torch.linalg.vector_norm(off, order) > share * torch.linalg.vector_norm(changed, order):
                return True
    return False


def _wrong(names: Sequence[str], found: CallComparison, advice: str = USE_THEM) -> CallComparison:
    first = "first at output {output}, index {index}: expected {expected}, got {actual}".format(
        **(found.first_mismatch or {})
    )
    sentence = (
        f"Wrong with other values for weights that have one ({listed(names)}): {found.mismatch_count} of "
        f"{found.element_count} elements, {first}. {advice}"
    )
    return replace(found, fault=sentence)


def _value(weight: torch.Tensor) -> str:
    value = float(weight.reshape(-1)[0])
    word = {0.0: "zero", 1.0: "one"}.get(value)
    return f"{value:.3g}" if word is None else word + "s" * (weight.numel() > 1)


def constant(state: State) -> list[str]:
    """Floating parameters, and running statistics by their name, that all have one value, as their maker gave it."""
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
    kept = name.rpartition(".")[2]
    return kept == RUNNING_MEAN or (kept == RUNNING_VAR and float(first) > 0)  # A variance stays positive.
