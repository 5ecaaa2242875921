"""Values of one form, as many sets of inputs are: one tree for all, and each of its tensors of all of them as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from domain import value as values
from domain.value import TensorRef


@dataclass(frozen=True)
class AlikeValues:
    """So many; `form` has a reference in the place of each tensor, `stacks` those tensors in its order: [count, ...].

    To make a tree of each, and to copy from each, takes longer than the kernels that small ones are for.
    """

    form: Any
    stacks: list[torch.Tensor]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        if not self.stacks:
            return iter([self.form] * self.count)
        each = zip(*(stack.unbind() for stack in self.stacks), strict=True)
        return (values.filled(self.form, TensorRef, tensors) for tensors in each)

    def first(self, count: int) -> AlikeValues:
        """So many of them, or all where there are fewer; none of less than none."""
        own = min(max(count, 0), self.count)
        return AlikeValues(self.form, [stack[:own] for stack in self.stacks], own)
