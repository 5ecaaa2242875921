"""Copies the reference's weights into the candidate, so that both compute the same function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from domain.fault import KernelFault
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.value import Unserializable, leaves
from sandbox.supervisor.messages import ModelState
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.time_budget import TimeBudget
from validation.compare.bitwise import identical

TRY_S = 5.0
MAX_NAMES, MAX_NAME_CHARS = 8, 128

COPIED = "the reference's, copied into the candidate"
SAME_SEED = "each its own, made under the same seed"
OWN = f"{SAME_SEED}: the candidate's constructor changes them, and with the reference's it is wrong"


class Weights:
    """Weights pass through the referee: neither process reads the other.

    `summary` becomes `inputs.weights`, `findings` become `inputs.weight_findings`.
    """

    def __init__(self, reference: KernelRun, candidate: KernelRun) -> None:
        self._reference = reference
        self._candidate = candidate
        self.state = ModelState({}, frozenset())
        self.summary: str | None = None
        self.findings: list[Flag] = []

    def share(self) -> None:
        """Copy the reference's weights if the candidate has all of them by name, shape and kind of dtype."""
        if self._reference.session is None or self._candidate.session is None:
            raise ValueError("not loaded")
        with self._reference.attribute_faults():
            self.state = self._reference.session.state()
        if not self.state.weights:
            return
        with self._candidate.attribute_faults():
            copied = self._candidate.session.load_state(self.state.weights)
        self.summary = COPIED if copied else SAME_SEED
        tensors = [weight for weight in self.state.weights.values() if isinstance(weight, torch.Tensor)]
        self._reference.weight_bytes = sum(weight.numel() * weight.element_size() for weight in tensors)

    def has_own(self) -> bool:
        """Whether the candidate, just constructed again, has other values than the reference's weights."""
        own = self._candidate.open_session.state().weights
        pairs = [(value, own.get(name)) for name, value in self.state.weights.items()]
        return not all(
            isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and identical(one, other)
            for one, other in pairs
        )

    def advice(self) -> str | None:
        """Advice for a wrong candidate whose constructor got other arguments than it names, or that has own weights."""
        got, own = (run.loaded.arguments.init if run.loaded else None for run in (self._reference, self._candidate))
        theirs, its = ([repr(value) for value in each or ()] for each in (got, own))
        if theirs != its and len(theirs) == len(its) and not leaves(got, Unserializable):
            return (
                f"where they fit, its constructor got the reference's arguments ({listed(theirs)}), and not those of "
                f"its own get_init_inputs() ({listed(its)}): take them in the reference's order, or give the "
                "parameters its names"
            )
        if self.summary != SAME_SEED:
            return None
        which = listed([f"{name} {list(weight.shape)}" for name, weight in self.state.weights.items()])
        return (
            "its weights are its own, as not all of the reference's fit by name, shape and kind of dtype: with "
            f"the same state_dict ({which}) it would be given those; else make them in the same order, as both "
            "start from the same seed"
        )

    @property
    def shared(self) -> dict[str, Any]:
        """The weights that the candidate got from the reference; empty if each has its own."""
        return self.state.weights if self.summary == COPIED else {}

    def check_buffers(self, budget: TimeBudget) -> None:
        """Report buffers (running statistics) that calls of the reference change, and calls of the candidate do not.

        Both runners report their own state, so this is no verdict: buffers are not part of an output.
        """
        first = {name: value for name, value in self.shared.items() if isinstance(value, torch.Tensor)}
        buffers = first.keys() - self.state.parameters
        if not buffers or not budget.fits(TRY_S):
            return
        ends: list[dict[str, Any]] = []
        for kernel_run in (self._reference, self._candidate):
            session = kernel_run.open_session
            session.set_deadline(budget.within(TRY_S))
            try:
                ends.append(session.state().weights)
            except KernelFault as fault:
                message = f"what calls change of the weights could not be read: {fault.message}"
                self.findings.append(Flag(FlagCode.BUFFERS_UNREADABLE, message))
                return
        changed_by_reference, changed_by_candidate = (
            {
                name
                for name in buffers
                if isinstance(end.get(name), torch.Tensor) and not identical(end[name], first[name])
            }
            for end in ends
        )
        if left := sorted(changed_by_reference - changed_by_candidate):
            message = f"calls of the reference change {listed(left)}, those of the candidate do not: it skips that work"
            self.findings.append(Flag(FlagCode.BUFFERS_NOT_UPDATED, message, {"buffers": len(left)}))


def listed(names: Sequence[str]) -> str:
    return ", ".join(name[:MAX_NAME_CHARS] for name in names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")
