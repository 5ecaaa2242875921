"""Many values with the same structure, held as one tree whose tensors are stacked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from domain import value as values
from domain.value import TensorRef


@dataclass(frozen=True)
class StackedValues:
    """`count` values with the same structure.

    `form` is the shared tree, with a TensorRef in the place of each tensor. `stacks` has one tensor of shape [count,
    ...] for each TensorRef, in the same order.

    Building and copying a tree for each value would take longer than many of the kernels that use them.
    """

    form: Any
    stacks: list[torch.Tensor]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        if not self.stacks:
            return iter([self.form] * self.count)
        rows = zip(*(stack.unbind() for stack in self.stacks), strict=True)
        return (values.filled(self.form, TensorRef, tensors) for tensors in rows)

    def first(self, count: int) -> StackedValues:
        """The first `count` values, or all of them if there are fewer."""
        limit = min(max(count, 0), self.count)
        return StackedValues(self.form, [stack[:limit] for stack in self.stacks], limit)
