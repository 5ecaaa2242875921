"""Finds index arguments that follow a rule (offsets, lengths, segments, permutations), so that they are drawn anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from kernel_eval_client.contract import TensorInit

MAX_ELEMENTS = 1 << 20
"""Maximum elements of a tensor that is searched; larger ones are sent."""


def index_inits(tensors: Mapping[str, Any], sizes: Iterable[int]) -> dict[str, TensorInit]:
    """How to draw the integer tensors that follow a rule, by name; `sizes` are those of all tensors.

    Offsets begin with 0, differ in their steps, and end with one of `sizes`: other ascending numbers may mean anything.
    Lengths and segments follow offsets; a permutation holds each number below its size once, out of order.
    """
    values = {name: _values(tensor) for name, tensor in tensors.items()}
    found, known = dict[str, TensorInit](), set(sizes)
    for name, numbers in values.items():
        steps = [after - before for before, after in pairwise(numbers)]
        if len(set(steps)) > 1 and min(steps) >= 0 and numbers[0] == 0 and numbers[-1] in known:
            found[name] = TensorInit("offsets", low=min(steps), high=max(steps), total=numbers[-1])
        elif len(numbers) > 2 and sorted(numbers) == list(range(len(numbers))) != numbers:
            found[name] = TensorInit("distinct")
    offsets = {name: values[name] for name, init in found.items() if init.kind == "offsets"}
    for name, numbers in values.items():
        for source, ends in offsets.items() if name not in found else ():
            lengths = [after - before for before, after in pairwise(ends)]
            if numbers == lengths:
                found[name] = TensorInit("lengths", of=source)
            elif len(numbers) == ends[-1] and numbers == [
                part for part, length in enumerate(lengths) for _ in range(length)
            ]:
                found[name] = TensorInit("segments", of=source)
    return found


def _values(tensor: Any) -> list[int]:
    """The numbers of a tensor of one dimension; empty for another."""
    is_row = len(tensor.shape) == 1 and tensor.shape[0] <= MAX_ELEMENTS
    return [int(number) for number in tensor.tolist()] if is_row else []
