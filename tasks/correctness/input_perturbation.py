"""One additional input set of a job, in other distributions than it was drawn from, for every kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import count

import torch

from backends.dtypes import is_computed
from domain import value as values
from domain.contract import INDEX_KINDS, Argument
from domain.fault import KernelFault
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from validation.inputs.distributions import Distribution, perturbed
from validation.inputs.layout import with_zeros_of
from validation.inputs.structure.input_structure import InputStructure, TensorStructure, describe, find_structure
from validation.inputs.structure.properties import SETS
from validation.inputs.structure.variations import shuffled, varies, vary, with_relations
from validation.inputs.tensor_spec import is_random
from validation.inputs.value_traits import ValueTraits, classify_values
from validation.seeds import derive_seed

NUMBER = 1 << 40
"""Number of the set: far above those of all windows, so that it does not depend on how many windows ran."""

MOST_SETS = 8
"""Maximum number of sets from which `independent` takes its tensors."""
STRUCTURE_S = 1.0
"""Maximum time for drawing more than two sets in which structure is sought, in s."""


class InputPerturbation:
    """Draws the set once; every distribution is made from the same numbers, under the job's secret."""

    def __init__(self, inputs: TrialInputs, secret: int) -> None:
        self._inputs = inputs
        self._secret = secret
        self._numbers = count(NUMBER)
        self._drawn = self._fresh()
        self._tensors: list[torch.Tensor] = values.leaves(self._drawn, torch.Tensor)

    @cached_property
    def _structure(self) -> InputStructure:
        """The structure that drawn sets share, found at first use: that takes more sets, and copies of tensors."""
        result = find_structure(self._sets())
        arguments = self._arguments
        if arguments is None:
            return result
        tensors = [
            replace(tensor, variable=tensor.variable and argument.role != "output" and not _is_index(argument))
            for argument, tensor in zip(arguments, result.tensors, strict=True)
        ]
        # A contract draws each tensor by itself.
        return replace(result, tensors=tuple(tensors), relations=())

    def _sets(self) -> Iterator[list[torch.Tensor]]:
        yield self._tensors
        began = time.monotonic()
        with suppress(KernelFault):  # Fewer sets share more than the task demands, never less.
            for number in range(1, SETS):
                if number > 1 and time.monotonic() - began > STRUCTURE_S:
                    return
                yield values.leaves(self._fresh(), torch.Tensor)

    def _fresh(self) -> Arguments:
        return self._inputs.drawn(next(self._numbers))

    @property
    def _arguments(self) -> list[Argument] | None:
        """The tensors of the contract that draws the sets; None if a source does."""
        contract = self._inputs.contract
        return None if contract is None else [argument for argument in contract.args if argument.is_tensor]

    @cached_property
    def _traits(self) -> list[ValueTraits]:
        arguments = self._arguments
        structures = self._structure.tensors
        if arguments is not None:
            return [
                _of_argument(argument, tensor, structure)
                for argument, tensor, structure in zip(arguments, self._tensors, structures, strict=True)
            ]
        targets = {one.target for one in self._structure.relations}
        traits = [classify_values(*pair) for pair in zip(self._tensors, structures, strict=True)]
        return [
            ValueTraits.STRUCTURED if number in targets and kind.random else kind for number, kind in enumerate(traits)
        ]

    def some_may_change(self, distribution: Distribution) -> bool:
        """Whether the distribution may change any tensor; otherwise the set stays as drawn."""
        return any(self.changed_inputs(distribution))

    def _changes(self, distribution: Distribution, number: int) -> bool:
        if distribution.change is not None and self._traits[number].random:
            return True
        variation = distribution.variation
        return variation is not None and varies(self._structure.tensors[number], self._tensors[number], variation)

    @property
    def some_move(self) -> bool:
        """Whether perturbing by rounding is meaningful for any tensor."""
        return any(kind.continuous for kind in self._traits)

    @property
    def unchanged(self) -> dict[str, str]:
        """Why a floating input stays within the task's: by the argument's name, or `input i` in the source's order."""
        if self._arguments is not None:
            names = [argument.name for argument in self._arguments]
        else:
            names = [f"input {number}" for number in range(len(self._tensors))]
        stated = (ValueTraits.NOT_FLOATING, ValueTraits.UNDETERMINED)
        return {
            name: self._reason(number)
            for number, (name, kind) in enumerate(zip(names, self._traits, strict=True))
            if not (kind.random or kind in stated)
        }

    def _reason(self, number: int) -> str:
        kind, relation = self._traits[number], self._structure.relation_of(number)
        if kind is not ValueTraits.STRUCTURED:
            return kind.value
        if relation is not None:
            return f"{kind.value}: {relation.function} input {relation.source}"
        return f"{kind.value}: {describe(self._structure.tensors[number], self._tensors[number])}"

    def plain(self) -> dict[str, Arguments]:
        """The arguments of every kernel for the set as drawn, by role."""
        return self._inputs.binder.bind(self._drawn, NUMBER)

    def another(self) -> dict[str, Arguments] | None:
        """The arguments of another drawn set, by role; None as of `independent`."""
        return None if self._inputs.contract is not None else self._inputs.binder.bind(self._fresh(), NUMBER + 1)

    def independent(self, distribution: Distribution) -> dict[str, Arguments] | None:
        """Arguments in which each tensor comes from another drawn set, but for those known to follow another; by role.

        Each call draws other sets.

        Tensors that the distribution changes are shuffled, as far as that keeps their structure: where rows have one
        that was not found, such as a rank, a kernel that relies on it is wrong here too.

        None if a contract draws each tensor and element independently anyway. Raises KernelFault as
        `TrialInputs.drawn` does.
        """
        if self._inputs.contract is not None:
            return None
        sources = {one.target: one.source for one in self._structure.relations}
        size, seed = len(self._tensors), next(self._numbers)
        sets = [self._fresh() for _ in range(min(size, MOST_SETS))]
        tensors = [
            values.leaves(sets[sources.get(number, number) % MOST_SETS], torch.Tensor)[number] for number in range(size)
        ]
        others = [
            shuffled(self._structure.tensors[number], tensor, derive_seed(self._secret, "shuffle", seed, number))
            if number not in sources and self._changes(distribution, number)
            else tensor
            for number, tensor in enumerate(tensors)
        ]
        others = with_relations(self._structure, tensors, others)
        return self._inputs.binder.bind(self._filled(others), NUMBER + 1)

    def changed_inputs(self, distribution: Distribution) -> tuple[bool, ...]:
        """For each tensor, whether the distribution may change it."""
        return tuple(self._changes(distribution, number) for number in range(len(self._tensors)))

    def of(self, distribution: Distribution) -> dict[str, Arguments]:
        """The arguments of every kernel for the set in this distribution, by role."""
        return self._inputs.binder.bind(self._filled(self._changed(distribution)), NUMBER)

    def for_reference(self, distribution: Distribution, number: int, by: float, *, double: bool) -> Arguments:
        """The reference's arguments, with everything continuous perturbed at random by a share `by`.

        Each `number` perturbs differently; a negative one perturbs by the opposite. `double`: convert to float64 first.
        """
        moved = []
        for position, (tensor, kind) in enumerate(zip(self._changed(distribution), self._traits, strict=True)):
            wide = tensor.double() if double and is_computed(tensor) else tensor
            if by and kind.continuous:
                seed = derive_seed(self._secret, "move", abs(number), position)
                # Zeros of plain random numbers move too, so that equal values separate.
                wide = perturbed(wide, by if number > 0 else -by, seed, zeros=kind is ValueTraits.PLAIN)
            moved.append(wide)
        return self._inputs.binder.bind_reference(self._filled(moved))

    def _changed(self, distribution: Distribution) -> list[torch.Tensor]:
        """The tensors in this distribution; those that it leaves are the drawn ones themselves."""
        targets = {one.target for one in self._structure.relations}
        changed = [
            tensor if number in targets else self._changed_one(distribution, number)
            for number, tensor in enumerate(self._tensors)
        ]
        return with_relations(self._structure, self._tensors, changed)

    def _changed_one(self, distribution: Distribution, number: int) -> torch.Tensor:
        tensor, kind = self._tensors[number], self._traits[number]
        seed = derive_seed(self._secret, distribution.name, number)
        if kind.random and distribution.change is not None:
            changed = distribution.apply(tensor, seed, sum(one.random for one in self._traits[:number]))
            return changed if kind is ValueTraits.PLAIN else with_zeros_of(tensor, changed)
        if distribution.variation is None:
            return tensor
        return vary(self._structure.tensors[number], tensor, distribution.variation, seed)

    def _filled(self, tensors: list[torch.Tensor]) -> Arguments:
        filled: Arguments = values.filled(self._drawn, torch.Tensor, tensors)
        return filled


def _is_index(argument: Argument) -> bool:
    """Whether it holds index numbers by a rule, which only its own draws keep."""
    spec = argument.tensor_spec
    return spec is not None and spec.init is not None and spec.init.kind in INDEX_KINDS


def _of_argument(argument: Argument, tensor: torch.Tensor, structure: TensorStructure) -> ValueTraits:
    spec = argument.tensor_spec
    if argument.role == "output" or spec is None:
        return ValueTraits.UNDETERMINED
    if not tensor.is_floating_point():
        return ValueTraits.NOT_FLOATING
    if not is_random(spec):
        return ValueTraits.NOT_DRAWN
    if spec.init is not None and spec.init.kind != "randn":
        return ValueTraits.DECLARED_RANGE
    return classify_values(tensor, structure, declared_normal=True)
