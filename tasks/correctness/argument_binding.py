"""Binds drawn input sets to the arguments of each kernel: the same values, in the form of the kernel's own contract."""

from __future__ import annotations

import torch

from domain.contract import IOContract
from domain.value import TensorRef
from sandbox.protocol.stacked_values import StackedValues
from tasks.correctness.input_batches import Arguments, StackedSets, StackOf
from tasks.runtime.kernel_run import KernelRun
from validation.inputs.contract_inputs import (
    ContractInputs,
    arguments_for,
    input_positions,
    inputs_needing_copy,
    match_arguments,
    plain_call_positions,
)

InputNames = dict[int, str | None]
"""Argument positions that hold inputs, with their names in the contract; inputs of a source have no name."""


class ArgumentBinder:
    """Binds sets that were drawn from `contract`, or made by the owner's source if there is no contract.

    `own` draws the candidate's outputs and constants, if it has a contract of its own.
    """

    def __init__(
        self, owner: KernelRun, candidate: KernelRun, contract: IOContract | None, own: ContractInputs | None
    ) -> None:
        self._owner = owner
        self._candidate = candidate
        self._contract = contract
        self._own = own
        self.converted_layouts: list[str] = []
        """Names of the candidate's inputs that its contract asks for in another memory layout; copied before timing."""

    @property
    def shared(self) -> bool:
        """Whether every kernel gets exactly the same arguments."""
        return all(kernel_run.kernel.io == self._contract for kernel_run in (self._owner, self._candidate))

    def bind(self, drawn: Arguments, number: int) -> dict[str, Arguments]:
        """The arguments of every kernel for the set of that number, by role."""
        return {self._owner.role: self.bind_reference(drawn), self._candidate.role: self._candidates(drawn, number)}

    def bind_reference(self, drawn: Arguments) -> Arguments:
        """The arguments of the owner (the reference, if there is one) for a drawn set."""
        return self._without_contract(drawn) if self._owner.kernel.io is None else drawn

    def bind_contract_stacks(self, inputs: ContractInputs, numbers: range) -> StackedSets | None:
        """The contract's sets of those numbers, stacked; None if they must be bound one by one."""
        names: InputNames = {position: inputs.io.args[position].name for position in input_positions(inputs.io)}
        return self._stacked(_drawn_by(self._owner, inputs, numbers), names, numbers)

    def bind_source_stacks(self, drawn: StackedValues, numbers: range) -> StackedSets | None:
        """Sets that a source made, stacked, if each tensor is an argument; None as in `bind_contract_stacks`."""
        positions = [position for position, argument in enumerate(drawn.form) if isinstance(argument, TensorRef)]
        stacks = dict(zip(positions, drawn.stacks, strict=True))
        return self._stacked(stacks.__getitem__, dict.fromkeys(positions), numbers)

    def _candidates(self, drawn: Arguments, number: int) -> Arguments:
        io, own = self._candidate.kernel.io, self._own
        if self._candidate is self._owner or io == self._contract:
            return drawn
        if io is None or own is None:
            return self._without_contract(drawn)
        with self._candidate.attribute_faults():
            drawn_own = own.draw(number)
            arguments = arguments_for(io, drawn_own, self._contract, drawn)
            if number == 0:
                self.converted_layouts = inputs_needing_copy(io, drawn_own, self._contract, drawn)
            return arguments

    def _without_contract(self, drawn: Arguments) -> Arguments:
        """The arguments of a callable without a contract: the contract's inputs, without outputs and constants."""
        return (
            drawn if self._contract is None else [drawn[position] for position in plain_call_positions(self._contract)]
        )

    def _stacked(self, drawn: StackOf, names: InputNames, numbers: range) -> StackedSets | None:
        candidates = self._candidates_stack(drawn, names, numbers)
        if candidates is None:
            return None
        owners = self._inputs_only(drawn) if self._owner.kernel.io is None else drawn
        return StackedSets(len(numbers), {self._candidate.role: candidates, self._owner.role: owners})

    def _candidates_stack(self, drawn: StackOf, names: InputNames, numbers: range) -> StackOf | None:
        io, own = self._candidate.kernel.io, self._own
        if self._candidate is self._owner or io == self._contract:
            return drawn
        if io is None or own is None:
            return self._inputs_only(drawn)
        positions = list(names)
        with self._candidate.attribute_faults():
            pairs = {index: positions[number] for index, number in match_arguments(io, list(names.values())).items()}
            # An argument without a counterpart is an output, or the same in every set.
            unpaired = [index for index, argument in enumerate(io.args) if argument.is_tensor and index not in pairs]
            stackable = all(own.can_stack(index, numbers) for index in unpaired)
        stack_of_own = _drawn_by(self._candidate, own, numbers)
        return (lambda index: drawn(pairs[index]) if index in pairs else stack_of_own(index)) if stackable else None

    def _inputs_only(self, drawn: StackOf) -> StackOf:
        if self._contract is None:
            return drawn
        positions = plain_call_positions(self._contract)
        return lambda index: drawn(positions[index])


def _drawn_by(kernel_run: KernelRun, inputs: ContractInputs, numbers: range) -> StackOf:
    """The stacks that a kernel's own contract draws; a fault while drawing is that kernel's."""

    def stack(index: int) -> torch.Tensor:
        with kernel_run.attribute_faults():
            return inputs.stack(index, numbers.start, len(numbers))

    return stack
