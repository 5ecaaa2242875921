"""The source of a job's inputs: draws fresh sets and binds them to every kernel's arguments."""

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
from domain.gradients import GradientPlan
from domain.inputs import DrawOn
from domain.result import Status
from domain.value import TensorRef
from sandbox.protocol.arena import without_contents
from sandbox.protocol.stacked_values import StackedValues
from tasks.correctness.argument_binding import ArgumentBinder
from tasks.correctness.input_batches import Arguments, SeparateSets, StackedSets
from tasks.correctness.input_mixing import MixedInputs
from tasks.runtime.freeze import frozen
from tasks.runtime.kernel_run import KernelRun
from validation.compare.bitwise import identical
from validation.evidence.determinism import fingerprint
from validation.inputs.contract_inputs import ContractInputs
from validation.seeds import derive_seed

# Drawing inputs does not count as the kernel's time, but it holds the device. Above the first budget, windows run over
# mixtures of drawn sets; above the second, over the same sets again. In s.
DRAW_BUDGET_S = 10.0
MIX_BUDGET_S = 5.0
SLOW_DRAWING_S = 1.0
"""Seconds of drawing after which a candidate is stopped while its inputs are drawn."""
MIXED = 1 << 41
"""First number of the mixed sets, far above all others."""
# Maximum number and bytes of sets per request: one exchange with the runner costs as much as several small sets. The
# bytes are below those that a runner gives back to the driver after each exchange (LARGE in sandbox/runner/runner.py).
MAX_BATCH, BATCH_BYTES = 256, 240 << 20
BATCH_S = 1.0
"""Maximum seconds of a batch, because the budget is only checked between batches."""
STORED_SETS = 2

TensorForm = tuple[torch.dtype, torch.Size]
ArgumentForm = list[TensorForm]
"""Dtype and shape of each tensor of an argument; empty for a number."""
SourceSets = list[Arguments] | StackedValues


class TrialInputs:
    """Draws fresh input sets under the job's secret.

    Their owner is the reference if there is one, else the kernel itself. A contract draws them in the referee, the
    owner's `get_inputs` makes them, or the owner's runner infers them; `summary` says which.
    """

    def __init__(self, owner: KernelRun, candidate: KernelRun, device: str, secret: int) -> None:
        self._owner = owner
        self._candidate = candidate
        self._device = device
        self._secret = secret
        self._infer = False
        self._note: str | None = None
        self._drawn_on: DrawOn | None = None
        self._batch_size = 1
        self._drawn = 0
        self.reused = 0
        """Number of calls whose inputs an earlier call already had."""
        self._mixed = 0
        self._mixing_s = 0.0
        self._mixer = MixedInputs(secret)
        self._spent_s = 0.0
        self._stored: list[Arguments] = []
        self._fingerprints: list[list[int]] | None = None
        """Those of the stored sets' tensors, once their contents are no longer kept."""
        self._equal: bool | None = None
        self._form: list[ArgumentForm] | None = None
        self.contract = self._chosen_contract()
        """The contract that the sets are drawn from; None if the owner's source makes them."""
        self._by_contract = self._drawer(self.contract)
        self.binder = ArgumentBinder(owner, candidate, self.contract, self._drawer(candidate.kernel.io))

    def first(self) -> dict[str, Arguments]:
        """The first set: the arguments of every kernel, by role."""
        (batch,) = self.draw(1)
        assert isinstance(batch, SeparateSets)  # The first set is never stacked: see `_of_contract`.
        (first,) = batch
        return first

    def of_owner(self) -> Arguments:
        """The owner's first set, not counted as a fresh one."""
        (arguments,) = self._make_for_owner(range(1))
        return arguments

    def draw(self, count: int) -> Iterator[SeparateSets | StackedSets]:
        """Draw `count` new sets, a batch at a time, so that the caller need not hold all of them.

        Their tensors are in the referee's memory. Draws at least one set, but fewer than `count` once the drawing
        budget is spent.
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
        """Mix up to `count` sets from drawn ones, one per batch, until the mixing budget is spent."""
        while count and self.mixable:
            count -= 1
            started = time.monotonic()
            number = MIXED + self._mixed
            arguments = self.binder.bind(self._mixer.of(number), number)
            self._mixed += 1
            self._mixing_s += time.monotonic() - started
            yield SeparateSets([arguments])

    @property
    def mixable(self) -> bool:
        """Whether drawn sets can be mixed: only those of a source, and only plain random numbers."""
        return self._mixing_s < MIX_BUDGET_S and self._mixer.possible

    def window_seed(self, number: int) -> int:
        """Seed for the random numbers that kernels draw themselves in that trial: secret, and the same for both."""
        return self._seed(-1 - number)

    @property
    def affordable(self) -> bool:
        """Whether the drawing budget allows more sets."""
        return self._spent_s < DRAW_BUDGET_S

    def _batch(self, count: int) -> SeparateSets | StackedSets:
        numbers = range(self._drawn, self._drawn + count)
        batch = self._of_contract(self._by_contract, numbers) if self._by_contract else self._of_source(numbers)
        self._drawn += len(batch)
        return batch

    def _of_contract(self, inputs: ContractInputs, numbers: range) -> SeparateSets | StackedSets:
        with self._owner.attribute_faults():
            together = inputs.draw_ahead(numbers) if numbers.start > 0 else numbers[:1]
        stacked = self.binder.bind_contract_stacks(inputs, together) if len(together) > 1 else None
        if stacked is not None:
            return stacked
        # A contract itself states whether its sets are equal, and each set takes as much memory as a call.
        return self._singly(self._make_for_owner(numbers), numbers, stored=1)

    def _of_source(self, numbers: range) -> SeparateSets | StackedSets:
        sets = self._make_for_owner(numbers)
        self._mixer.store(sets)
        if isinstance(sets, StackedValues) and self._stored and self._positions_match_first(sets):
            stacked = self.binder.bind_source_stacks(sets, numbers)
            if stacked is not None:
                self._store(list(sets.first(STORED_SETS - numbers.start)))
                return stacked
        return self._singly(sets, numbers, STORED_SETS)

    def _positions_match_first(self, sets: StackedValues) -> bool:
        """Whether every tensor of the sets is an argument by itself, at the positions of the first set's tensors."""
        tensors = [isinstance(argument, TensorRef) for argument in sets.form]
        first = [isinstance(argument, torch.Tensor) for argument in self._first()]
        return tensors == first and sum(tensors) == len(sets.stacks)

    def _make_for_owner(self, numbers: range) -> SourceSets:
        with self._owner.attribute_faults():
            return self._make(numbers)

    def _singly(self, sets_drawn: SourceSets, numbers: range, stored: int) -> SeparateSets:
        """Bind each set by itself; store the first `stored` sets of the job."""
        sets = [self.binder.bind(drawn, fresh) for fresh, drawn in zip(numbers, sets_drawn, strict=True)]
        self._store([one[self._owner.role] for one in sets[: max(stored - numbers.start, 0)]])
        return SeparateSets(sets)

    def _store(self, sets: list[Arguments]) -> None:
        self._stored += sets
        if self._fingerprints is not None:
            self.drop_contents()

    def _limit_batch(self, set_s: float) -> None:
        """Limit the batch by memory, and so that neither a batch nor the budget takes much longer than it should."""
        first, budget_s = self._first(), min(BATCH_S, DRAW_BUDGET_S - self._spent_s)
        size = max(sum(tensor.nbytes for tensor in values.leaves(first, torch.Tensor)), 1)
        # The sets of a source arrive in one message of at most MAX_NODES values.
        max_sets_per_message = (values.MAX_NODES - 1) // values.nodes(first)
        self._batch_size = max(
            min(MAX_BATCH, max_sets_per_message, BATCH_BYTES // size, int(budget_s / max(set_s, 1e-9))), 1
        )

    def drawn(self, number: int) -> Arguments:
        """The set of that number as the owner or the contract makes it, to be bound; not counted as a fresh one.

        Raises KernelFault, which is attributed to no kernel.
        """
        (drawn,) = self._make(range(number, number + 1))
        first = self._first() if self.contract is None else drawn  # Every call of a layout has its Python values.
        arguments: Arguments = values.filled(first, torch.Tensor, values.leaves(drawn, torch.Tensor))
        return arguments

    @property
    def summary(self) -> dict[str, Any]:
        """The part of the report's `inputs` that describes the source."""
        return {
            "source": self._source(),
            "inferred": self._note,
            "drawn_on": self._drawn_on if self.contract is None else _place(self._device),
            "constructed_on": self._owner.loaded.constructed_on if self._owner.loaded is not None else None,
            "fresh_sets": self._drawn,
            "mixed_sets": self._mixed,
            "reused_sets": self.reused,
            "inputs_not_random": self._sets_equal(),
            "shapes": [list(tensor.shape) for tensor in values.leaves(self._first(), torch.Tensor)],
            "dtypes": [
                str(tensor.dtype).removeprefix("torch.") for tensor in values.leaves(self._first(), torch.Tensor)
            ],
        }

    def _chosen_contract(self) -> IOContract | None:
        if self._owner.kernel.io is not None and self._owner.kernel.io.args:
            return self._owner.kernel.io
        if self._owner.loaded is not None and self._owner.loaded.has_inputs:
            return None
        if self._candidate.kernel.io is not None:
            return self._candidate.kernel.io
        self._infer = True
        return None

    def _drawer(self, io: IOContract | None) -> ContractInputs | None:
        return ContractInputs(io, self._device, self._secret) if io is not None else None

    def _make(self, numbers: range) -> SourceSets:
        if self._by_contract is not None:
            return [self._by_contract.draw(fresh) for fresh in numbers]
        sets = self._request(numbers, infer=self._infer)
        if sets is None:
            raise KernelFault(
                Status.RUNTIME_ERROR,
                "could not determine inputs: give an IO contract (`io`), or define get_inputs() in the source",
            )
        for arguments in sets.first(1) if isinstance(sets, StackedValues) else sets:
            self._check_form(arguments)
        plan = self._owner.gradients
        return sets if plan is None else self._with_cotangents(sets, plan, numbers)

    def _with_cotangents(self, sets: SourceSets, plan: GradientPlan, numbers: range) -> SourceSets:
        """The sets with fresh secret cotangents, and with the plan as the last argument."""
        cotangents = [
            [
                self._normal(ref, derive_seed(self._secret, "cotangent", number, index)).mul_(plan.scale)
                for number in numbers
            ]
            for index, ref in enumerate(plan.cotangents)
        ]
        if isinstance(sets, StackedValues):
            stacks = [*sets.stacks, *map(torch.stack, cotangents)]
            return StackedValues([*sets.form, *plan.cotangents, plan.argument], stacks, sets.count)
        each = zip(*cotangents, strict=True) if cotangents else [()] * len(sets)
        return [[*arguments, *drawn, plan.argument] for arguments, drawn in zip(sets, each, strict=True)]

    def _normal(self, ref: TensorRef, seed: int) -> torch.Tensor:
        generator = torch.Generator(self._device).manual_seed(seed)
        dtype = getattr(torch, ref.dtype)
        return torch.randn(ref.shape, generator=generator, device=self._device, dtype=dtype)

    def _check_form(self, arguments: Arguments) -> None:
        """Raise KernelFault if a set has another form than the first one: the layout of calls depends on it."""
        form: list[ArgumentForm] = [
            [(tensor.dtype, tensor.shape) for tensor in values.leaves(argument, torch.Tensor)] for argument in arguments
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

    def _request(self, numbers: range, *, infer: bool) -> SourceSets | None:
        session = self._owner.session
        if session is None:
            raise ValueError("the owner has no runner")
        if (window_session := self._owner.window_session) is not None and window_session.device.is_crowded:
            window_session.device.empty_cache()  # This set may need the memory that the last one left.
        # A candidate with many busy processes could otherwise slow drawing down until sets are repeated.
        with frozen(self._owner.candidate if self._spent_s > SLOW_DRAWING_S else None):
            sets, note = session.inputs([self._seed(fresh) for fresh in numbers], infer=infer)
        self._note = note or self._note
        self._drawn_on = session.drawn_on
        return sets

    def _seed(self, fresh: int) -> int:
        digest = hashlib.blake2b(f"{self._secret}:{fresh}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _source(self) -> str:
        if self.contract is not None:
            return "io contract" if self.contract is self._owner.kernel.io else "the candidate's io contract"
        return "inferred" if self._infer else "get_inputs"

    def _first(self) -> Arguments:
        return self._stored[0] if self._stored else []

    def drop_contents(self) -> None:
        """Keeps of the first sets' tensors, now and later, only types, shapes and strides, and a fingerprint each."""
        self._fingerprints = self._fingerprints or []
        for number in range(len(self._fingerprints), len(self._stored)):
            drawn = self._stored[number]
            tensors = values.leaves(drawn, torch.Tensor)
            self._fingerprints.append([fingerprint(tensor, self._secret) for tensor in tensors])
            self._stored[number] = values.replace(drawn, torch.Tensor, without_contents)

    def _sets_equal(self) -> bool:
        """Whether fresh sets are equal, so that the comparison could not catch a kernel that replays outputs."""
        if self._by_contract is not None:
            return self._by_contract.repeats
        if len(self._stored) < STORED_SETS:
            return False
        if self._equal is None:
            if self._fingerprints is not None:
                one, two = self._fingerprints
                self._equal = one == two
            else:
                firsts, seconds = (values.leaves(arguments, torch.Tensor) for arguments in self._stored)
                self._equal = len(firsts) == len(seconds) and all(map(identical, firsts, seconds))
        return self._equal


def _place(device: str) -> DrawOn:
    return DrawOn.HOST if device == "cpu" else DrawOn.DEVICE


def _described(form: ArgumentForm | None) -> str:
    if form is None:
        return "no argument"
    tensors = [f"a tensor of {str(dtype).removeprefix('torch.')} {list(shape)}" for dtype, shape in form]
    return " and ".join(tensors) or "no tensor"
