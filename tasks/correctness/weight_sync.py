"""The weights of a comparison: the reference's, given to the candidate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from domain.fault import KernelFault
from sandbox.supervisor.messages import State
from tasks.runtime.kernel_run import KernelRun
from validation.compare.bitwise import identical

TRY_S = 5.0
NAMED, NAME_CHARS = 8, 128

COPIED = "the reference's, copied into the candidate"
EACH_ITS_OWN = "each its own, made under the same seed"


class Weights:
    """By way of the referee: neither process reads the other. `summary` is the answer's `inputs.weights`."""

    def __init__(self, reference: KernelRun, candidate: KernelRun) -> None:
        self._reference = reference
        self._candidate = candidate
        self._state = State({}, frozenset())
        self.summary: str | None = None

    def share(self) -> None:
        """Gives the candidate what the reference has, where it has each by name, shape and kind of dtype."""
        if self._reference.session is None or self._candidate.session is None:
            raise ValueError("not loaded")
        with self._reference.attribute_faults():
            self._state = self._reference.session.state()
        if not self._state.weights:
            return
        with self._candidate.attribute_faults():
            copied = self._candidate.session.load_state(self._state.weights)
        self.summary = COPIED if copied else EACH_ITS_OWN
        tensors = [weight for weight in self._state.weights.values() if isinstance(weight, torch.Tensor)]
        self._reference.weight_bytes = sum(weight.numel() * weight.element_size() for weight in tensors)

    @property
    def state(self) -> State:
        """The reference's own."""
        return self._state

    @property
    def advice(self) -> str | None:
        """What to do where the candidate is wrong and was not given the reference's weights."""
        if self.summary != EACH_ITS_OWN:
            return None
        which = listed([f"{name} {list(weight.shape)}" for name, weight in self._state.weights.items()])
        return (
            "its weights are its own, as not all of the reference's fit by name, shape and kind of dtype: with "
            f"the same state_dict ({which}) it would be given those; else make them in the same order, as both "
            "start from the same seed"
        )

    @property
    def shared(self) -> dict[str, Any]:
        """What the candidate was given of the reference's; empty where each has its own."""
        return self._state.weights if self.summary is not None and self.summary.startswith(COPIED) else {}

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
            session = contender.open_session
            session.runner.deadline = min(deadline, time.monotonic() + TRY_S)
            try:
                ends.append(session.state().weights)
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
                f"{self.summary}; calls of the reference change {listed(left)}, those of the candidate do not: that "
                "work it leaves out"
            )


def listed(names: Sequence[str]) -> str:
    return ", ".join(name[:NAME_CHARS] for name in names[:NAMED]) + (", …" if len(names) > NAMED else "")
