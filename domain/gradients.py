"""The gradients that a call computes beside its outputs, as the last of the call's arguments says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from domain.value import TensorRef

MARK = "$gradients"
"""The key of the argument that asks for gradients; the cotangents stand before it."""
MOST_SCALE = 2.0**24
"""Maximum factor of cotangents."""


@dataclass(frozen=True)
class GradientPlan:
    """The gradients that both kernels of a comparison compute.

    - `inputs`: indexes among the tensors of the arguments, depth first.
    - `parameters`: names of the module's parameters.
    - `outputs`: indexes of the outputs that have a cotangent, mappings in the order of their keys; empty for a forward
      pass by itself.
    - `cotangents`: dtype and shape of those cotangents. The referee draws them, standard normal times `scale`.
    - `scale`: makes the smallest gradient as large as the tolerance needs: that of a mean over a million is 1e-6.
    """

    inputs: tuple[int, ...]
    parameters: tuple[str, ...]
    outputs: tuple[int, ...]
    cotangents: tuple[TensorRef, ...] = ()
    scale: float = 1.0

    @property
    def count(self) -> int:
        """The number of gradients, which follow a call's outputs."""
        return len(self.inputs) + len(self.parameters) if self.outputs else 0

    def names(self, count: int) -> list[str]:
        """The names of `count` outputs, such as "gradient of input 0"; empty for a forward pass by itself."""
        if not self.outputs:
            return []
        gradients = [f"input {number}" for number in self.inputs] + [f"parameter {name}" for name in self.parameters]
        outputs = [f"output {number}" for number in range(count - len(gradients))]
        return outputs + [f"gradient of {name}" for name in gradients]

    @property
    def argument(self) -> dict[str, dict[str, list[Any]]]:
        return {MARK: {"inputs": list(self.inputs), "parameters": list(self.parameters), "outputs": list(self.outputs)}}

    @classmethod
    def of(cls, args: Sequence[Any]) -> Self | None:
        """The plan that a call's arguments hold, without its cotangents; None for a call without gradients."""
        match args:
            case [*_, {"$gradients": plan}]:
                return cls(tuple(plan["inputs"]), tuple(plan["parameters"]), tuple(plan["outputs"]))
        return None


def forward_output_count(plan: GradientPlan | None, total: int) -> int:
    """How many of a call's `total` outputs are the forward's own; the others are gradients. `plan` as in the call."""
    return total - plan.count if plan is not None else total
