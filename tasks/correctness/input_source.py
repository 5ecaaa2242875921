"""Where a job's inputs come from, and every contender's arguments made of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import torch

from domain import value as values
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.result import Status
from domain.value import TensorRef
from sandbox.protocol.stacked_values import AlikeValues
from tasks.correctness.argument_binding import HandedOut
from tasks.correctness.input_batches import Arguments, SeparateSets, StackedSets
from tasks.correctness.input_mixing import MixedInputs
from tasks.runtime.freeze import frozen
from tasks.runtime.kernel_run import KernelRun
from validation.compare.bitwise import identical
from validation.inputs.contract_inputs import ContractInputs

# Drawing inputs is not the kernel's time, but it holds the device: past this, windows run over drawn sets mixed, and
# past the other over the same sets again.
DRAW_BUDGET_S = 10.0
MIX_BUDGET_S = 5.0
DEAR_S = 1.0
"""Past this, drawing is so dear that a candidate is stopped meanwhile on a GPU's host too."""
MIXED = 1 << 41
"""Numbers of mixed sets begin here, far from all others."""
# Sets that are asked for at a time: one exchange with the runner costs as much as several small sets.
MAX_BATCH, BATCH_BYTES = 256, 256 << 20
BATCH_S = 1.0
"""So long a batch should take at most: between batches the budget is looked at."""
KEPT = 2

TensorForm = tuple[torch.dtype, torch.Size]
ArgumentForm = list[TensorForm]
"""Of the tensors in it: none of a number's."""
Made = list[Arguments] | AlikeValues


class TrialInputs:
    """Fresh input sets under the job's secret.

    Their owner is the reference where there is one, else the kernel itself. They come from a contract (drawn by the
    referee), or from the owner's `get_inputs`, or are inferred in the owner's runner; which, is in `summary`.
    """

    def __init__(self, owner: KernelRun, candidate: KernelRun, device: str, secret: int) -> None:
        self._owner = owner
        self._candidate = candidate
        self._device = device
        self._secret = secret
        self._infer = False
        self._note: str | None = None
        self._batch_size = 1
        self._drawn = 0
        self.reused = 0
        """Calls that got inputs which they, or others, had had before."""
        self._mixed = 0
        self._mixing_s = 0.0
        self._mixer = MixedInputs(secret)
        self._spent_s = 0.0
        self._kept: list[Arguments] = []
        self._form: list[ArgumentForm] | None = None
        self._contract = self._chosen_contract()
        self._by_contract = self._drawer(self._contract)
        self.handed_out = HandedOut(owner, candidate, self._contract, self._drawer(candidate.kernel.io))

    def first(self) -> dict[str, Arguments]:
        """The first set: for each contender, by role, what it is called with."""
        (batch,) = self.draw(1)
        assert isinstance(batch, SeparateSets)  # The first set is by itself: a contract says what is in it.
        (first,) = batch
        return first

    def draw(self, count: int) -> Iterator[SeparateSets | StackedSets]:
        """So many sets, none of them ever drawn before.

        Tensors lie in the referee's memory. A batch at a time, so that not all of them have to be kept, and fewer than
        `count` in all, but at least one, where the budget is spent before.
        """
        left = count
        while left == count > 0 or (left and self.affordable):
            started = time.monotonic()
            batch = self._batch(min(left, self._batch_size))
            took = time.monotonic() - started
            self._spent_s += took
            self._limit_batch(took / len(batch))
            left -= len(batch)
            yield batch

    def mixed(self, count: int) -> Iterator[SeparateSets]:
        """So many sets made of drawn ones, as long as the time for that is not spent; as of `draw`, one by one."""
        while count and self.mixable:
            count -= 1
            started = time.monotonic()
            number = MIXED + self._mixed
            made = self.handed_out.of(self._mixer.of(number), number)
            self._mixed += 1
            self._mixing_s += time.monotonic() - started
            yield SeparateSets([made])

    @property
    def mixable(self) -> bool:
        """Whether drawn sets can be mixed to new ones: what a source draws, where it is plain random numbers."""
        return self._mixing_s < MIX_BUDGET_S and self._mixer.possible

    def window_seed(self, number: int) -> int:
        """For what kernels draw themselves in the round of that number: the same for both, and nobody's to know."""
        return self._seed(-1 - number)

    @property
    def affordable(self) -> bool:
        """Whether more sets should be drawn."""
        return self._spent_s < DRAW_BUDGET_S

    def _batch(self, count: int) -> SeparateSets | StackedSets:
        numbers = range(self._drawn, self._drawn + count)
        batch = self._of_contract(self._by_contract, numbers) if self._by_contract else self._of_source(numbers)
        self._drawn += len(batch)
        return batch

    def _of_contract(self, inputs: ContractInputs, numbers: range) -> SeparateSets | StackedSets:
        with self._owner.attribute_faults():
            together = inputs.drawn_together(numbers) if numbers.start > 0 else numbers[:1]
        stacked = self.handed_out.of_contract(inputs, together) if len(together) > 1 else None
        if stacked is not None:
            return stacked
        # Whether its sets are equal a contract says itself, and each takes as much memory as a call.
        return self._singly(self._answered(numbers), numbers, kept=1)

    def _of_source(self, numbers: range) -> SeparateSets | StackedSets:
        made = self._answered(numbers)
        self._mixer.keep(made)
        if isinstance(made, AlikeValues) and self._kept and self._lie_as_the_first(made):
            stacked = self.handed_out.of_source(made, numbers)
            if stacked is not None:
                self._kept += made.first(KEPT - numbers.start)
                return stacked
        return self._singly(made, numbers, KEPT)

    def _lie_as_the_first(self, made: AlikeValues) -> bool:
        """Whether each tensor of all of them is an argument by itself, where the first set has one."""
        tensors = [isinstance(argument, TensorRef) for argument in made.form]
        first = [isinstance(argument, torch.Tensor) for argument in self._first()]
        return tensors == first and sum(tensors) == len(made.stacks)

    def _answered(self, numbers: range) -> Made:
        with self._owner.attribute_faults():
            return self._make(numbers)

    def _singly(self, made: Made, numbers: range, kept: int) -> SeparateSets:
        """Each handed out; the first of all are kept."""
        sets = [self.handed_out.of(drawn, fresh) for fresh, drawn in zip(numbers, made, strict=True)]
        self._kept += [one[self._owner.role] for one in sets[: max(kept - numbers.start, 0)]]
        return SeparateSets(sets)

    def _limit_batch(self, set_s: float) -> None:
        """By memory, and so that neither a batch nor the budget takes much longer than it should."""
        first, within = self._first(), min(BATCH_S, DRAW_BUDGET_S - self._spent_s)
        size = max(sum(tensor.nbytes for tensor in values.leaves(first, torch.Tensor)), 1)
        # What a source makes crosses in one message, of so many nodes.
        crossing = (values.MAX_NODES - 1) // values.nodes(first)
        self._batch_size = max(min(MAX_BATCH, crossing, BATCH_BYTES // size, int(within / max(set_s, 1e-9))), 1)

    @property
    def contract(self) -> IOContract | None:
        """What the sets are drawn from; None where the owner's source makes them."""
        return self._contract

    def drawn(self, number: int) -> Arguments:
        """That set as its owner or the contract makes it, for `handed_out`; it counts for none of the fresh ones.

        Raises KernelFault, which is attributed to no kernel.
        """
        (drawn,) = self._make(range(number, number + 1))
        first = self._first() if self._contract is None else drawn  # Whose Python values every call of a layout has.
        made: Arguments = values.filled(first, torch.Tensor, values.leaves(drawn, torch.Tensor))
        return made

    @property
    def summary(self) -> dict[str, Any]:
        """What the answer says about the inputs."""
        return {
            "source": self._source(),
            "inferred": self._note,
            "fresh_sets": self._drawn,
            "mixed_sets": self._mixed,
            "reused_sets": self.reused,
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
        with self._owner.attribute_faults():
            if self._asked(range(1), infer=False) is not None:
                return None
        if self._candidate.kernel.io is not None:
            return self._candidate.kernel.io
        self._infer = True
        return None

    def _drawer(self, io: IOContract | None) -> ContractInputs | None:
        return ContractInputs(io, self._device, self._secret) if io is not None else None

    def _make(self, numbers: range) -> Made:
        if self._by_contract is not None:
            return [self._by_contract.draw(fresh) for fresh in numbers]
        made = self._asked(numbers, infer=self._infer)
        if made is None:
            raise KernelFault(
                Status.RUNTIME_ERROR,
                "could not determine inputs: give an IO contract (`io`), or define get_inputs() in the source",
            )
        for one in made.first(1) if isinstance(made, AlikeValues) else made:
            self._check_form(one)
        return made

    def _check_form(self, made: Arguments) -> None:
        """Raises KernelFault where a source's set has other arguments than its first: calls are laid out for those."""
        form: list[ArgumentForm] = [
            [(tensor.dtype, tensor.shape) for tensor in values.leaves(argument, torch.Tensor)] for argument in made
        ]
        if self._form is None:
            self._form = form
        if form != self._form:
            unlike = next(pair for pair in zip_longest(self._form, form) if pair[0] != pair[1])
            first, now = map(_described, unlike)
            raise KernelFault(
                Status.UNSUPPORTED,
                f"get_inputs() made {first} at first, and {now} in its place later: every call has fresh "
                "inputs of one form, so draw values and not sizes, and compare each size in a job of its own",
            )

    def _asked(self, numbers: range, *, infer: bool) -> Made | None:
        session = self._owner.session
        if session is None:
            raise ValueError("the owner has no runner")
        rests = self._candidate is not self._owner and (self._device == "cpu" or self._spent_s > DEAR_S)
        # Else one with many processes would have it take so long that sets come again.
        with frozen([self._candidate] if rests else []):
            made, note = session.inputs([self._seed(fresh) for fresh in numbers], infer=infer)
        self._note = note or self._note
        return made

    def _seed(self, fresh: int) -> int:
        digest = hashlib.blake2b(f"{self._secret}:{fresh}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _source(self) -> str:
        if self._contract is not None:
            return "io contract" if self._contract is self._owner.kernel.io else "the candidate's io contract"
        return "inferred" if self._infer else "get_inputs"

    def _first(self) -> Arguments:
        return self._kept[0] if self._kept else []

    def _sets_equal(self) -> bool:
        """Whether fresh sets hold the same content, so that a kernel which remembers an answer would not be caught."""
        if self._by_contract is not None:
            return self._by_contract.repeats
        if len(self._kept) < KEPT:
            return False
        one, two = (values.leaves(kept, torch.Tensor) for kept in self._kept)
        return len(one) == len(two) and all(map(identical, one, two))


def _described(form: ArgumentForm | None) -> str:
    if form is None:
        return "no argument"
    tensors = [f"a tensor of {str(dtype).removeprefix('torch.')} {list(shape)}" for dtype, shape in form]
    return " and ".join(tensors) or "no tensor"
