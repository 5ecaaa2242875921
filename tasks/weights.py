"""The weights of a comparison: the reference's given to the candidate, and later other values for constant ones."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import torch

from domain.fault import KernelFault
from sandbox.replies import State
from tasks.at_rest import undisturbed_window
from tasks.contender import Contender
from tasks.rounds import Rounds
from tasks.varied_inputs import VariedInputs
from validation.bits import identical
from validation.comparison import compare
from validation.seeds import derived

NOISE = 0.25
"""At most so much, and half of it at least, of a constant's own size, or of one for zeros: its sign stays, and it shows
at any usual tolerance, be it a single number."""
TRY_S = 5.0
NAMED, NAME_CHARS = 8, 128

COPIED = "the reference's, copied into the candidate"
EACH_ITS_OWN = "each its own, made under the same seed"

RUNNING_MEAN, RUNNING_VAR = "running_mean", "running_var"
"""What torch's norm layers call the buffers that they compute with in eval mode."""


class Weights:
    """By way of the referee: neither process reads the other. `summary` is the answer's `inputs.weights`."""

    def __init__(self, reference: Contender, candidate: Contender, secret: int) -> None:
        self._reference = reference
        self._candidate = candidate
        self._secret = secret
        self._state = State({}, frozenset())
        self.summary: str | None = None

    def share(self) -> None:
        """Gives the candidate what the reference has, where it has each by name, shape and kind of dtype."""
        if self._reference.session is None or self._candidate.session is None:
            raise ValueError("not loaded")
        with self._reference.answerable():
            self._state = self._reference.session.state()
        if not self._state.weights:
            return
        with self._candidate.answerable():
            copied = self._candidate.session.load_state(self._state.weights)
        self.summary = COPIED if copied else EACH_ITS_OWN

    @property
    def advice(self) -> str | None:
        """What to do where the candidate is wrong and was not given the reference's weights."""
        if self.summary != EACH_ITS_OWN:
            return None
        which = _listed([f"{name} {list(weight.shape)}" for name, weight in self._state.weights.items()])
        return (
            "its weights are its own, as not all of the reference's fit by name, shape and kind of dtype: with "
            f"the same state_dict ({which}) it would be given those; else make them in the same order, as both "
            "start from the same seed"
        )

    @property
    def shared(self) -> dict[str, Any]:
        """What the candidate was given of the reference's; empty where each has its own."""
        return self._state.weights if self.summary is not None and self.summary.startswith(COPIED) else {}

    def try_others(self, rounds: Rounds, inputs: VariedInputs) -> None:
        """Gives weights that have one value each (a new norm layer's) others, and says whether answers still agree.

        No verdict: a candidate that packed its weights when it was made is told from one that ignores them by nothing
        that can be seen from here (docs/adr/0009). The last thing asked of both runners. Where the candidate has not
        all of the reference's, none can be tried, and that is said.
        """
        names = _constant(self._state)
        if self.summary is None or not names:
            return
        if not self.shared:
            which = _listed([f"{name} {_value(self._state.weights[name])}" for name in names])
            self.summary += (
                f"; the reference's of one value ({which}) could not be tried with others, as not all of its "
                "weights fit the candidate: one that ignores them is not told from one that uses them"
            )
            return
        if time.monotonic() + TRY_S > rounds.deadline:
            return
        others = dict(self._state.weights)
        for place, name in enumerate(names):
            others[name] = self._with_noise(others[name], place)
        which = _listed(names)
        try:
            agree = self._agree(rounds, inputs, others)
        except KernelFault as fault:
            self.summary += f"; other values for those of one value ({which}) could not be tried: {fault.message}"
            return
        if agree is None:
            self.summary += f"; other values for those of one value ({which}) could not be given to both"
        elif agree:
            self.summary += f"; with other values for those of one value ({which}) both still agree"
        else:
            self.summary += (
                f"; with other values for those of one value ({which}) the candidate no longer agrees: it leaves them "
                "out, or copied them when it was made"
            )

    def look_at_buffers(self, deadline: float) -> None:
        """Says where calls change what the reference keeps (running statistics), and not what the candidate does.

        By their own word, so no verdict: what a layer keeps is in no answer.
        """
        first = {name: kept for name, kept in self.shared.items() if isinstance(kept, torch.Tensor)}
        buffers = first.keys() - self._state.parameters
        if not buffers or time.monotonic() + TRY_S > deadline:
            return
        ends: list[dict[str, Any]] = []
        for contender in (self._reference, self._candidate):
            if contender.session is None:
                raise ValueError(f"the {contender.role} has no runner")
            contender.session.runner.deadline = min(deadline, time.monotonic() + TRY_S)
            try:
                ends.append(contender.session.state().weights)
            except KernelFault as fault:
                self.summary = f"{self.summary}; what calls change of them could not be read: {fault.message}"
                return
        theirs, ours = (
            {
                name
                for name in buffers
                if isinstance(end.get(name), torch.Tensor) and not identical(end[name], first[name])
            }
            for end in ends
        )
        if left := sorted(theirs - ours):
            self.summary = (
                f"{self.summary}; calls of the reference change {_listed(left)}, those of the candidate do not: that "
                "work it leaves out"
            )

    def _agree(self, rounds: Rounds, inputs: VariedInputs, others: dict[str, Any]) -> bool | None:
        slots, plain = rounds.slots(1), inputs.plain()
        answers = []
        for contender in (self._reference, self._candidate):
            if contender.session is None:
                raise ValueError(f"the {contender.role} has no runner")
            contender.session.runner.deadline = min(rounds.deadline, time.monotonic() + TRY_S)
            if not contender.session.load_state(others):
                return None
            layout = slots[contender.role]
            layout.fill(0, [plain[contender.role]])
            try:
                window = undisturbed_window(contender, rounds.contenders, layout, rounds.bench.device)
                answers.append(layout.read(window.snapshot)[0])
            finally:
                # What is asked after this (the run in float64) is compared with answers under the first ones.
                with suppress(KernelFault):  # A runner that is gone is not asked either.
                    contender.session.load_state(self._state.weights)
        expected, actual = answers
        return compare(expected, actual, rounds.tolerance).passed

    def _with_noise(self, weight: torch.Tensor, place: int) -> torch.Tensor:
        generator = torch.Generator(device=weight.device).manual_seed(derived(self._secret, "weights", place))
        wide = weight.to(torch.float64)  # 8-bit floats have no arithmetic of their own.
        draw = torch.rand(weight.shape, generator=generator, device=weight.device).mul_(2).sub_(1)
        draw = (draw + torch.where(draw < 0, -1, 1)) * (NOISE / 2)  # As far from nothing as of either sign.
        size = wide.abs()
        return (wide + torch.where(size > 0, size, 1.0) * draw).to(weight.dtype)


def _listed(names: list[str]) -> str:
    return ", ".join(name[:NAME_CHARS] for name in names[:NAMED]) + (", …" if len(names) > NAMED else "")


def _value(weight: torch.Tensor) -> str:
    value = float(weight.reshape(-1)[0])
    word = {0.0: "zero", 1.0: "one"}.get(value)
    return f"{value:.3g}" if word is None else word + "s" * (weight.numel() > 1)


def _constant(state: State) -> list[str]:
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
        # A single number always has one value; one that was drawn is neither 0 nor 1.
        return weight.numel() > 1 or float(first) in (0, 1)
    kept = name.rpartition(".")[2]
    return kept == RUNNING_MEAN or (kept == RUNNING_VAR and float(first) > 0)  # A variance stays positive.
