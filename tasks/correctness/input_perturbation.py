"""One more input set of a job, in other distributions than it was drawn from, for every contender."""

from __future__ import annotations

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
"""Of the set: far from all that windows count through, so that it is the same however many of those there were."""


MOST_SETS = 8
"""Drawn so that inputs come from different ones."""


class VariedInputs:
    """The set is drawn once; each distribution is made of the same numbers, under the job's secret."""

    def __init__(self, inputs: TrialInputs, secret: int) -> None:
        self._inputs = inputs
        self._secret = secret
        self._drawn = inputs.drawn(NUMBER)
        tensors = values.leaves(self._drawn, torch.Tensor)
        self._names, self._natures = _described(inputs.contract, tensors)

    def some_may_change(self, distribution: Distribution) -> bool:
        """Whether any tensor looks like what that is made of; where none does, it is the drawn one."""
        return distribution.applies_to in self._natures

    @property
    def some_move(self) -> bool:
        """Whether rounding leaves any tensor what it is."""
        return any(kind.continuous for kind in self._natures)

    @property
    def left_alone(self) -> dict[str, str]:
        """Why a floating input stays as it was drawn: by the argument's name, or `input i` in the source's order."""
        return {
            name: kind.value
            for name, kind in zip(self._names, self._natures, strict=True)
            if kind not in (ValueTraits.PLAIN, ValueTraits.NOT_FLOATING, ValueTraits.UNDETERMINED)
        }

    def plain(self) -> dict[str, Arguments]:
        """The set as it was drawn."""
        return self._inputs.handed_out.of(self._drawn, NUMBER)

    def apart(self) -> dict[str, Arguments] | None:
        """As they are drawn, but each tensor of another set, so that none was computed of another one; by role.

        None where one is no set, or a contract draws each by itself anyway. Raises KernelFault as `drawn` does.
        """
        count = len(self._natures)
        if count < 2 or self._inputs.contract is not None:
            return None
        sets = [self._inputs.drawn(NUMBER + 1 + place) for place in range(min(count, MOST_SETS))]
        each = [values.leaves(sets[place % MOST_SETS], torch.Tensor)[place] for place in range(count)]
        return self._inputs.handed_out.of(values.filled(self._drawn, torch.Tensor, each), NUMBER + 1)

    def of(self, distribution: Distribution) -> dict[str, Arguments]:
        """What each contender is called with, by role."""
        return self._inputs.handed_out.of(self._changed(distribution), NUMBER)

    def for_reference(self, distribution: Distribution, turn: int, by: float, *, double: bool) -> Arguments:
        """The inputs' owner's arguments, everything continuous moved at random by a share `by`.

        Differently each turn, the opposite way where it is negative. `double`: in float64, and moved there.
        """
        places = iter(enumerate(self._natures))

        def move(tensor: torch.Tensor) -> torch.Tensor:
            place, kind = next(places)
            if double and tensor.is_floating_point():
                tensor = tensor.double()
            if not (by and kind.continuous):
                return tensor
            seed = derive_seed(self._secret, "move", abs(turn), place)
            # Of plain numbers zeros too: what is equal comes apart.
            return perturbed(tensor, by if turn > 0 else -by, seed, zeros=kind is ValueTraits.PLAIN)

        drawn = values.replace(self._changed(distribution), torch.Tensor, move)
        return self._inputs.handed_out.for_owner(drawn)

    def _changed(self, distribution: Distribution) -> Arguments:
        places = iter(enumerate(self._natures))

        def change(tensor: torch.Tensor) -> torch.Tensor:
            place, kind = next(places)
            if kind is not distribution.applies_to:
                return tensor
            number = self._natures[:place].count(kind)
            return distribution.apply(tensor, derive_seed(self._secret, distribution.name, place), number)

        drawn: Arguments = values.replace(self._drawn, torch.Tensor, change)
        return drawn


def _described(contract: IOContract | None, tensors: list[torch.Tensor]) -> tuple[list[str], list[ValueTraits]]:
    """Names and natures of a set's tensors."""
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
