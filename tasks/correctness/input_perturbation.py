"""One additional input set of a job, in other distributions than it was drawn from, for every kernel."""

from __future__ import annotations

from functools import cached_property

import torch

from domain import value as values
from domain.contract import Argument, IOContract
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from validation.inputs.distributions import Distribution, perturbed
from validation.inputs.tensor_spec import is_random
from validation.inputs.value_traits import ValueTraits, classify_values
from validation.seeds import derive_seed

NUMBER = 1 << 40
"""Number of the set: far above those of all windows, so that it does not depend on how many windows ran."""


MOST_SETS = 8
"""Maximum number of sets from which `independent` takes its tensors."""


class InputPerturbation:
    """Draws the set once; every distribution is made from the same numbers, under the job's secret."""

    def __init__(self, inputs: TrialInputs, secret: int) -> None:
        self._inputs = inputs
        self._secret = secret
        self._drawn = inputs.drawn(NUMBER)

    @cached_property
    def _described(self) -> tuple[list[str], list[ValueTraits]]:
        """Names and traits of the set's tensors, from the first use on: finding traits takes copies of them."""
        return _described(self._inputs.contract, values.leaves(self._drawn, torch.Tensor))

    @property
    def _names(self) -> list[str]:
        return self._described[0]

    @property
    def _traits(self) -> list[ValueTraits]:
        return self._described[1]

    def some_may_change(self, distribution: Distribution) -> bool:
        """Whether any tensor has the traits that this distribution starts from; otherwise the set stays as drawn."""
        return distribution.applies_to in self._traits

    @property
    def some_move(self) -> bool:
        """Whether perturbing by rounding is meaningful for any tensor."""
        return any(kind.continuous for kind in self._traits)

    @property
    def unchanged(self) -> dict[str, str]:
        """Why a floating input stays as drawn: by the argument's name, or `input i` in the source's order."""
        return {
            name: kind.value
            for name, kind in zip(self._names, self._traits, strict=True)
            if kind not in (ValueTraits.PLAIN, ValueTraits.NOT_FLOATING, ValueTraits.UNDETERMINED)
        }

    def plain(self) -> dict[str, Arguments]:
        """The arguments of every kernel for the set as drawn, by role."""
        return self._inputs.binder.bind(self._drawn, NUMBER)

    def independent(self) -> dict[str, Arguments] | None:
        """Arguments in which each tensor comes from another drawn set, so none was computed from another; by role.

        None with a single tensor, or if a contract draws each tensor independently anyway. Raises KernelFault as
        `TrialInputs.drawn` does.
        """
        count = len(self._traits)
        if count < 2 or self._inputs.contract is not None:
            return None
        sets = [self._inputs.drawn(NUMBER + 1 + number) for number in range(min(count, MOST_SETS))]
        tensors = [values.leaves(sets[number % MOST_SETS], torch.Tensor)[number] for number in range(count)]
        return self._inputs.binder.bind(values.filled(self._drawn, torch.Tensor, tensors), NUMBER + 1)

    def of(self, distribution: Distribution) -> dict[str, Arguments]:
        """The arguments of every kernel for the set in this distribution, by role."""
        return self._inputs.binder.bind(self._changed(distribution), NUMBER)

    def for_reference(self, distribution: Distribution, number: int, by: float, *, double: bool) -> Arguments:
        """The reference's arguments, with everything continuous perturbed at random by a share `by`.

        Each `number` perturbs differently; a negative one perturbs by the opposite. `double`: convert to float64 first.
        """
        numbered = iter(enumerate(self._traits))

        def move(tensor: torch.Tensor) -> torch.Tensor:
            position, kind = next(numbered)
            if double and tensor.is_floating_point():
                tensor = tensor.double()
            if not (by and kind.continuous):
                return tensor
            seed = derive_seed(self._secret, "move", abs(number), position)
            # Zeros of plain random numbers move too, so that equal values separate.
            return perturbed(tensor, by if number > 0 else -by, seed, zeros=kind is ValueTraits.PLAIN)

        drawn = values.replace(self._changed(distribution), torch.Tensor, move)
        return self._inputs.binder.bind_reference(drawn)

    def _changed(self, distribution: Distribution) -> Arguments:
        numbered = iter(enumerate(self._traits))

        def change(tensor: torch.Tensor) -> torch.Tensor:
            position, kind = next(numbered)
            if kind is not distribution.applies_to:
                return tensor
            number = self._traits[:position].count(kind)
            return distribution.apply(tensor, derive_seed(self._secret, distribution.name, position), number)

        drawn: Arguments = values.replace(self._drawn, torch.Tensor, change)
        return drawn


def _described(contract: IOContract | None, tensors: list[torch.Tensor]) -> tuple[list[str], list[ValueTraits]]:
    """Names and traits of a set's tensors."""
    if contract is None:
        return [f"input {place}" for place in range(len(tensors))], [classify_values(tensor) for tensor in tensors]
    arguments = [argument for argument in contract.args if argument.is_tensor]
    return (
        [argument.name for argument in arguments],
        [_of_argument(argument, tensor) for argument, tensor in zip(arguments, tensors, strict=True)],
    )


def _of_argument(argument: Argument, tensor: torch.Tensor) -> ValueTraits:
    spec = argument.tensor_spec
    if argument.role == "output" or spec is None:
        return ValueTraits.UNDETERMINED
    if not tensor.is_floating_point():
        return ValueTraits.NOT_FLOATING
    if not is_random(spec):
        return ValueTraits.NOT_DRAWN
    if spec.init is not None and spec.init.kind != "randn":
        return ValueTraits.DECLARED_RANGE
    return classify_values(tensor, declared_normal=True)
