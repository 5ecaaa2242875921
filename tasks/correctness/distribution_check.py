"""A comparison's last question: whether both kernels agree on inputs that no standard normal brings.

Asked after the timing, one call a distribution: a reference that fails there, as it well may, then costs the job
nothing. A difference counts against the candidate only with evidence that the reference is right there
(`validation/evidence/perturbation_bound.py`, docs/adr/0009).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from domain.fault import KernelFault
from domain.flags import TIMEOUT_NEAR
from domain.kernel import KernelType
from domain.result import Status
from profiling.window.call_buffers import Slots, bytes_per_call
from tasks.correctness.boundary_check import TURNS as EDGE_TURNS
from tasks.correctness.input_perturbation import VariedInputs
from tasks.correctness.trials import Outputs, Rounds
from tasks.runtime.freeze import frozen_others, undisturbed_window
from tasks.runtime.kernel_run import KernelRun
from validation.compare.comparison import compare
from validation.compare.result import CallComparison
from validation.compare.rounding_boundary import few, given_by_reference
from validation.compare.tolerance import Tolerance
from validation.evidence.perturbation_bound import TURNS, Finding, examine, step
from validation.evidence.small_outputs import own_atols
from validation.inputs.distributions import DISTRIBUTIONS, DRAWN, SPARSE, Distribution

CALL_S, CALL_FACTOR = 2.0, 20.0
"""What one call or one float64 run may take here, beside that many times what a call takes otherwise."""
BUDGET_S = 5.0
FURTHER = [(turn, times) for turn, times in EDGE_TURNS if turn not in TURNS]
NOTHING_CHANGES = "no input looks like plain random numbers"
BELONG_TOGETHER = (
    "the kernels differ there, but so they do where each input is of another set of those that are drawn: one seems to "
    "be computed of another, and changed by itself it means nothing"
)
NOTHING_MOVES = "every input looks as if rounding would make it another one"


class OtherDistributions:
    """Tried with the runners of validated rounds; `summary` is the answer's `inputs.distributions`."""

    def __init__(self, rounds: Rounds, inputs: VariedInputs) -> None:
        self._rounds = rounds
        self._inputs = inputs
        self._reference, self._candidate = rounds.contenders
        self._slots: dict[str, Slots] = {}
        # Element by element: an outlier's size is no excuse for the rest. What is honest passes with evidence.
        self._plain = Tolerance(rounds.tolerance.atol, rounds.tolerance.rtol)
        self._call_s = CALL_S + CALL_FACTOR * max(contender.estimate_ms for contender in rounds.contenders) / 1e3
        self._own_atols = own_atols(rounds.reference_outputs, rounds.tolerance)
        self._until = 0.0
        self._has_failed = False
        self._belong: bool | None = None
        self._agreed: list[str] = []
        self._left_out: dict[str, str] = {}

    @property
    def summary(self) -> dict[str, Any]:
        """Which distributions were judged, which were not and why, and which inputs stayed as they were drawn."""
        return {"judged": self._agreed, "left_out": self._left_out, "inputs_left_alone": self._inputs.left_alone}

    def judge(self) -> None:
        """Compares on every distribution; ends at the first wrong answer or failure."""
        self._until = time.monotonic() + BUDGET_S
        too_large = self._too_large()
        why = too_large or (None if self._inputs.some_move else NOTHING_MOVES)
        if self._own_atols is not None:
            self._left_out |= self._tried(DRAWN, why or self._stopped())
        for distribution in (*([SPARSE] if self._inputs.some_may_change(SPARSE) else []), *DISTRIBUTIONS):
            why = too_large or (None if self._inputs.some_may_change(distribution) else NOTHING_CHANGES)
            self._left_out |= self._tried(distribution, why or self._stopped())

    def _too_large(self) -> str | None:
        # Of the reference's alone: a candidate with a large contract has to answer on the others all the same.
        too_large = bytes_per_call(self._rounds.example[self._reference.role], []) > self._rounds.memory()
        return "the inputs are too large: changing and moving them takes a dozen copies" if too_large else None

    def _stopped(self) -> str | None:
        """Why no further distribution can be tried."""
        now = time.monotonic()
        if not self._rounds.right:
            return "the kernel was wrong before"
        if self._has_failed:
            return "the kernel had failed before"
        if now + 2 * self._call_s > self._rounds.deadline:
            return TIMEOUT_NEAR
        return f"the others had taken {BUDGET_S:g} s" if now > self._until else None

    def _tried(self, distribution: Distribution, why: str | None) -> dict[str, str]:
        """Judges one, unless there is a reason not to; why it was not, by its name."""
        return {distribution.name: why} if why is not None else self._try(distribution)

    def _try(self, distribution: Distribution) -> dict[str, str]:
        self._fill(self._inputs.of(distribution))
        try:
            expected = self._outputs(self._reference)
        except KernelFault as fault:
            return {distribution.name: f"the reference failed on it: {fault.message}"}
        failure, actual = None, None
        began = time.monotonic()
        try:
            actual = self._outputs(self._candidate)
        except KernelFault as fault:
            failure = fault
        # Bounded by its own limit, and not counted: who is slow on the first ones does not get out of the others.
        self._until += time.monotonic() - began
        if actual is not None and self._agree(distribution, expected, actual):
            self._agreed.append(distribution.name)
            return {}
        found, exact_known = self._examined(distribution, expected, actual)
        if failure is not None:
            # A runner that failed is asked nothing more, whoever is to blame.
            if found.unsound is None and (exact_known or not distribution.harsh):
                self._candidate.fail(_on(distribution, failure))
            self._has_failed = True
            return {distribution.name: f"the kernel failed on it ({failure.message}); {_doubt(found)}"}
        why = found.unsound or self._no_evidence(distribution, found, exact_known=exact_known)
        if why is not None:
            return {distribution.name: why}
        self._agreed.append(distribution.name)
        if found.wrong:
            if distribution.harsh and not exact_known:
                found = replace(found, wrong=found.not_finite)
            self._rounds.note(_wrong(distribution, found, expected, self._rounds.tolerance))
        return {}

    def _no_evidence(self, distribution: Distribution, found: Finding, *, exact_known: bool) -> str | None:
        """Why what differs says nothing against the candidate, where it does not."""
        if found.wrong and self._belong_together():
            return BELONG_TOGETHER
        # No number where all runs of the reference have one needs no float64.
        needs_exact = distribution.harsh and (distribution.tied or not found.not_finite)
        return (
            f"{found.wrong} elements differ; {_doubt(found)}"
            if found.wrong and needs_exact and not exact_known
            else None
        )

    def _belong_together(self) -> bool:
        """Whether the kernels differ where each input is of another set; asked once, where they differ elsewhere.

        Drawn independently, inputs are then as they always are, so that no kernel can tell by them what it is asked.
        """
        if self._belong is None:
            self._belong = False
            try:
                if (apart := self._inputs.apart()) is not None:
                    self._belong = True  # Where the reference cannot be called so, too.
                    self._fill(apart)
                    expected, actual = self._outputs(self._reference), self._outputs(self._candidate)
                    self._belong = not compare(expected, actual, self._rounds.tolerance).passed
            except KernelFault:
                self._has_failed = True
        return self._belong

    def _atols(self, distribution: Distribution) -> list[float] | None:
        """The outputs' own, of the one distribution that is for what the tolerance tells nothing of."""
        return self._own_atols if distribution is DRAWN else None

    def _agree(self, distribution: Distribution, expected: Outputs, actual: Outputs) -> bool:
        atols = self._atols(distribution)
        if atols is None:
            return compare(expected, actual, self._plain).passed
        three = zip(expected, actual, atols, strict=True)
        return all(compare([want], [got], replace(self._plain, atol=atol)).passed for want, got, atol in three)

    def _examined(self, distribution: Distribution, expected: Outputs, actual: Outputs | None) -> tuple[Finding, bool]:
        """What speaks against the candidate, and whether the reference could be run in float64 for it."""
        by = step(self._rounds.tolerance, self._slots[self._reference.role].arguments(0))
        try:
            exact = self._doubled(distribution, 0, 0.0)
            if exact is not None:
                moves = [self._doubled(distribution, turn, by) or [] for turn in TURNS]
            else:
                moves = [self._again(distribution, turn, by) for turn in TURNS]
        except KernelFault as fault:
            return Finding(unsound=f"the reference failed on inputs that differ by rounding: {fault.message}"), False
        found = self._found(distribution, expected, actual, exact, moves)
        if exact is None or actual is None or not found.wrong or not few(found.wrong, found.rows, expected):
            return found, exact is not None
        # A few may by luck have hardly been moved; and where the reference jumps, either side is right (ADR 44).
        more = list(self._further(distribution, by))
        moves += [run for times, run in more if times == 1]
        found = self._found(distribution, expected, actual, exact, moves)
        atols = self._atols(distribution)
        tolerance = self._rounds.tolerance if atols is None else replace(self._plain, atol=min(atols))
        runs = [exact, *moves, *(run for times, run in more if times > 1)]
        if found.wrong and given_by_reference(expected, actual, runs, tolerance):
            found = replace(found, wrong=0, rows=0, first=None)
        return found, True

    def _further(self, distribution: Distribution, by: float) -> Iterator[tuple[float, Outputs]]:
        """More runs with moved inputs, and by how many times as much; as many as there is time for."""
        with suppress(KernelFault):  # What was found without them stands.
            for turn, times in FURTHER:
                if time.monotonic() > min(self._until, self._rounds.deadline - 2 * self._call_s):
                    return
                run = self._doubled(distribution, turn, times * by)
                if run is None:
                    return
                yield times, run

    def _found(
        self,
        distribution: Distribution,
        expected: Outputs,
        actual: Outputs | None,
        exact: Outputs | None,
        moves: list[Outputs],
    ) -> Finding:
        how: dict[str, Any] = {"tied": distribution.tied, "atols": self._atols(distribution)}
        return examine(expected, actual, exact, moves, self._rounds.tolerance, **how)

    def _doubled(self, distribution: Distribution, turn: int, by: float) -> Outputs | None:
        """One call of the reference in float64; None where it has no such form."""
        session = self._reference.session
        if session is None or self._reference.kernel.kernel_type is not KernelType.TORCH:
            return None
        session.runner.deadline = self._latest()
        moved = self._inputs.for_reference(distribution, turn, by, double=True)
        with frozen_others([self._candidate], self._rounds.bench.device):
            return session.double(moved)

    def _again(self, distribution: Distribution, turn: int, by: float) -> Outputs:
        """One call of the reference as it is, with moved inputs."""
        moved = self._inputs.for_reference(distribution, turn, by, double=False)
        self._slots[self._reference.role].fill(0, [moved])
        return self._outputs(self._reference)

    def _fill(self, arguments: dict[str, list[Any]]) -> None:
        if not self._slots:
            self._slots = self._rounds.slots(1)
        for role, layout in self._slots.items():
            layout.fill(0, [arguments[role]])

    def _outputs(self, contender: KernelRun) -> Outputs:
        """One call over what its slot holds; raises KernelFault."""
        contender.open_session.runner.deadline = self._latest()
        slots = self._slots[contender.role]
        window = undisturbed_window(contender, self._rounds.contenders, slots, self._rounds.bench.device)
        if slots.overrun(window.snapshot):
            raise KernelFault(Status.WRONG_RESULT, "the kernel wrote outside its outputs")
        return slots.read(window.snapshot)[0]

    def _latest(self) -> float:
        return min(self._rounds.deadline, time.monotonic() + self._call_s)


def untried(why: str) -> dict[str, Any]:
    """The summary where nothing could be tried."""
    left_out = {distribution.name: why for distribution in DISTRIBUTIONS}
    return {"judged": [], "left_out": left_out, "inputs_left_alone": {}}


def _doubt(found: Finding) -> str:
    return found.unsound or "without a float64 run of the reference that is no evidence against it"


def _on(distribution: Distribution, fault: KernelFault) -> KernelFault:
    message = f"{fault.message} (on {distribution.name} inputs, where the reference is right)"
    return KernelFault(fault.status, message, fault.log, compiled=fault.compiled)


def _wrong(distribution: Distribution, found: Finding, expected: Outputs, tolerance: Tolerance) -> CallComparison:
    first = "first at output {output}, index {index}: expected {expected}, got {actual}".format(**(found.first or {}))
    sentence = (
        f"Wrong on {distribution.name} inputs ({distribution.about}): {found.wrong} of {found.judged} elements, of "
        f"which {found.not_finite} are NaN or infinite; {first}"
    )
    return CallComparison(
        tolerance,
        sum(tensor.numel() for tensor in expected),
        mismatch_count=found.wrong,
        nonfinite_count=found.not_finite,
        strict_mismatch_count=found.wrong,
        relative_rms_error=None,
        first_mismatch=found.first,
        fault=sentence,
    )
