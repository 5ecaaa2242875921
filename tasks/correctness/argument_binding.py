"""What each contender is called with of the sets that are drawn: what its own contract asks for, of the same values."""

from __future__ import annotations

import torch

from domain.contract import IOContract
from domain.value import TensorRef
from sandbox.protocol.stacked_values import AlikeValues
from tasks.correctness.input_batches import Arguments, StackedSets, StackOf
from tasks.runtime.kernel_run import KernelRun
from validation.inputs.contract_inputs import (
    ContractInputs,
    arguments_for,
    called_with,
    counterparts,
    input_positions,
    laid_out_anew,
)

Given = dict[int, str | None]
"""Where inputs are among the arguments that are drawn, and their names; a source's have none."""


class HandedOut:
    """Of sets of that contract, or where there is none as the owner's source makes them.

    `own` draws what is the candidate's own, where it has a contract.
    """

    def __init__(
        self, owner: KernelRun, candidate: KernelRun, contract: IOContract | None, own: ContractInputs | None
    ) -> None:
        self._owner = owner
        self._candidate = candidate
        self._contract = contract
        self._own = own
        self.laid_out_anew: list[str] = []
        """The candidate's inputs that its contract has copied into another memory layout, before the clock runs."""

    @property
    def shared(self) -> bool:
        """Whether every contender gets the very same."""
        return all(contender.kernel.io == self._contract for contender in (self._owner, self._candidate))

    def of(self, drawn: Arguments, number: int) -> dict[str, Arguments]:
        """What each is called with of the set of that number, by role."""
        return {self._owner.role: self.for_owner(drawn), self._candidate.role: self._candidates(drawn, number)}

    def for_owner(self, drawn: Arguments) -> Arguments:
        """What the owner is called with of a set."""
        return self._without_contract(drawn) if self._owner.kernel.io is None else drawn

    def of_contract(self, inputs: ContractInputs, numbers: range) -> StackedSets | None:
        """Of the contract's sets of those numbers, which lie together; None where they are to be handed out singly."""
        given: Given = {position: inputs.io.args[position].name for position in input_positions(inputs.io)}
        return self._stacked(_drawn_by(self._owner, inputs, numbers), given, numbers)

    def of_source(self, drawn: AlikeValues, numbers: range) -> StackedSets | None:
        """The same of those that the source has made, whose tensors are arguments by themselves."""
        given = [position for position, argument in enumerate(drawn.form) if isinstance(argument, TensorRef)]
        stacks = dict(zip(given, drawn.stacks, strict=True))
        return self._stacked(stacks.__getitem__, dict.fromkeys(given), numbers)

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
                self.laid_out_anew = laid_out_anew(io, drawn_own, self._contract, drawn)
            return arguments

    def _without_contract(self, drawn: Arguments) -> Arguments:
        """For a callable that has none: a contract's inputs, without outputs and launch constants."""
        return drawn if self._contract is None else [drawn[position] for position in called_with(self._contract)]

    def _stacked(self, drawn: StackOf, given: Given, numbers: range) -> StackedSets | None:
        candidates = self._candidates_stack(drawn, given, numbers)
        if candidates is None:
            return None
        owners = self._inputs_only(drawn) if self._owner.kernel.io is None else drawn
        return StackedSets(len(numbers), {self._candidate.role: candidates, self._owner.role: owners})

    def _candidates_stack(self, drawn: StackOf, given: Given, numbers: range) -> StackOf | None:
        io, own = self._candidate.kernel.io, self._own
        if self._candidate is self._owner or io == self._contract:
            return drawn
        if io is None or own is None:
            return self._inputs_only(drawn)
        places = list(given)
        with self._candidate.attribute_faults():
            pairs = {index: places[number] for index, number in counterparts(io, list(given.values())).items()}
            # What has no counterpart is an output, or the same in every set.
            unpaired = [index for index, argument in enumerate(io.args) if argument.is_tensor and index not in pairs]
            together = all(own.lie_together(index, numbers) for index in unpaired)
        its_own = _drawn_by(self._candidate, own, numbers)
        return (lambda index: drawn(pairs[index]) if index in pairs else its_own(index)) if together else None

    def _inputs_only(self, drawn: StackOf) -> StackOf:
        if self._contract is None:
            return drawn
        positions = called_with(self._contract)
        return lambda index: drawn(positions[index])


def _drawn_by(contender: KernelRun, inputs: ContractInputs, numbers: range) -> StackOf:
    """The sets of the owner's contract; a fault while they are drawn is the owner's."""

    def stack(index: int) -> torch.Tensor:
        with contender.attribute_faults():
            return inputs.stack(index, numbers.start, len(numbers))

    return stack
