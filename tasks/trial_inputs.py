"""Where a job's inputs come from, and every contender's arguments made of them."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import torch

from domain import value as values
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.result import Status
from tasks.contender import Contender
from validation.inputs import ContractInputs, arguments_for

# Drawing inputs is not the kernel's time, but it holds the device: past this, sets are used again, and it is said.
DRAW_BUDGET_S = 10.0
MAX_KEPT = 16

Arguments = list[Any]


class TrialInputs:
    """Fresh input sets under the job's secret.

    Their owner is the reference where there is one, else the kernel itself. They come from a contract (drawn by the
    referee), or from the owner's `get_inputs`, or are inferred in the owner's runner; which, is in `summary`.
    """

    def __init__(self, owner: Contender, candidate: Contender, device: str, secret: int) -> None:
        self._owner = owner
        self._candidate = candidate
        self._device = device
        self._secret = secret
        self._infer = False
        self._note: str | None = None
        self._drawn = 0
        self._reused = 0
        self._spent_s = 0.0
        self._kept: list[dict[str, Arguments]] = []
        self._contract = self._chosen_contract()
        self._own = {c.role: ContractInputs(c.kernel.io, device, secret) for c in (owner, candidate) if c.kernel.io}

    def draw(self) -> dict[str, Arguments]:
        """The next set: for each contender, by role, what it is called with; tensors lie in the referee's memory."""
        if self._spent_s > DRAW_BUDGET_S and self._kept:
            self._reused += 1
            return self._kept[self._reused % len(self._kept)]
        started = time.monotonic()
        drawn = self._make(self._drawn)
        made = {self._owner.role: drawn, self._candidate.role: self._candidates(drawn, self._drawn)}
        if self._contract is not None and self._owner.kernel.io is None:
            made[self._owner.role] = _inputs_only(self._contract, drawn)
        self._spent_s += time.monotonic() - started
        self._drawn += 1
        if len(self._kept) < MAX_KEPT:
            self._kept.append(made)
        return made

    @property
    def summary(self) -> dict[str, Any]:
        """What the answer says about the inputs."""
        return {
            "source": self._source(),
            "inferred": self._note,
            "fresh_sets": self._drawn,
            "reused_sets": self._reused,
            "fresh_sets_equal": self._sets_equal(),
            "shapes": [list(tensor.shape) for tensor in values.leaves(self._first(), torch.Tensor)],
            "dtypes": [
                str(tensor.dtype).removeprefix("torch.") for tensor in values.leaves(self._first(), torch.Tensor)
            ],
        }

    def _chosen_contract(self) -> IOContract | None:
        """The contract that inputs are drawn from; None when the owner's source makes them."""
        if self._owner.kernel.io is not None and self._owner.kernel.io.args:
            return self._owner.kernel.io
        with self._owner.answerable():
            if self._asked(0, infer=False) is not None:
                return None
        if self._candidate.kernel.io is not None:
            return self._candidate.kernel.io
        self._infer = True
        return None

    def _make(self, fresh: int) -> Arguments:
        with self._owner.answerable():
            if self._contract is not None:
                return ContractInputs(self._contract, self._device, self._secret).draw(fresh)
            made = self._asked(fresh, infer=self._infer)
            if made is None:
                raise KernelFault(
                    Status.RUNTIME_ERROR,
                    "could not determine inputs: give an IO contract (`io`), or define get_inputs() in the source",
                )
            return made

    def _asked(self, fresh: int, *, infer: bool) -> Arguments | None:
        session = self._owner.session
        if session is None:
            raise ValueError("the owner has no runner")
        made, note = session.inputs(self._seed(fresh), infer=infer)
        self._note = note or self._note
        return made

    def _candidates(self, drawn: Arguments, fresh: int) -> Arguments:
        if self._candidate is self._owner or self._contract is self._candidate.kernel.io is not None:
            return drawn
        io = self._candidate.kernel.io
        if io is None:
            return drawn if self._contract is None else _inputs_only(self._contract, drawn)
        with self._candidate.answerable():
            return arguments_for(io, self._own[self._candidate.role].draw(fresh), self._contract, drawn)

    def _seed(self, fresh: int) -> int:
        digest = hashlib.blake2b(f"{self._secret}:{fresh}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big")

    def _source(self) -> str:
        if self._contract is not None:
            return "io contract" if self._contract is self._owner.kernel.io else "the candidate's io contract"
        return "inferred" if self._infer else "get_inputs"

    def _first(self) -> Arguments:
        return self._kept[0][self._owner.role] if self._kept else []

    def _sets_equal(self) -> bool:
        """Whether fresh sets hold the same content, so that a kernel which remembers an answer would not be caught."""
        if self._contract is not None:
            return ContractInputs(self._contract, self._device, self._secret).repeats
        if len(self._kept) < 2:
            return False
        one, two = (values.leaves(kept[self._owner.role], torch.Tensor) for kept in self._kept[:2])
        return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def _inputs_only(io: IOContract, drawn: Arguments) -> Arguments:
    """A contract's arguments for a callable that has no contract: its inputs, without outputs and launch constants."""
    return [
        value
        for argument, value in zip(io.args, drawn, strict=True)
        if not argument.is_meta and not (argument.is_tensor and argument.role == "output")
    ]
