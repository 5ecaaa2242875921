"""Has Triton's interpreter reduce by a function of the source in whole blocks: element by element takes minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import ReduceOps

_original_reduce = ReduceOps.generic_reduce


def install() -> None:
    """Patches this process and its forks."""
    ReduceOps.generic_reduce = _reduce


def _reduce(operation: Any, inputs: tuple[Any, ...]) -> list[Any]:
    if operation.axis is None:
        return _original_reduce(operation, inputs)  # type: ignore[no-any-return]
    operation.axis = range(len(inputs[0].shape))[operation.axis]  # The interpreter takes no negative axis here.
    try:
        with _no_branches_on_blocks():
            return _reduce_by_pairs(operation, inputs)
    except Exception:  # A function that branches on a value takes one element at a time.
        return _original_reduce(operation, inputs)  # type: ignore[no-any-return]


@contextmanager
def _no_branches_on_blocks() -> Iterator[None]:
    """The interpreter takes each block for true."""
    of_interpreter = tl.tensor.__bool__

    def truth(tensor: Any) -> bool:
        if tensor.handle.data.size != 1:
            raise ValueError("the elements of a block may take other branches")
        return bool(of_interpreter(tensor))

    tl.tensor.__bool__ = truth
    try:
        yield
    finally:
        tl.tensor.__bool__ = of_interpreter


def _reduce_by_pairs(operation: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Combines neighbours until one is left: the function is associative, and may not be commutative."""
    axis, arrays = operation.axis, [each.handle.data for each in inputs]

    def part(array: np.ndarray[Any, Any], which: slice) -> Any:
        return array[(slice(None),) * axis + (which,)]

    while (length := arrays[0].shape[axis]) > 1:
        end = length - length % 2
        sides = [
            operation.to_tensor(part(array, slice(start, end, 2)), each.dtype)
            for start in (0, 1)
            for array, each in zip(arrays, inputs, strict=True)
        ]
        results = operation.combine_fn.fn(*sides)
        combined = [each.handle.data for each in (results if isinstance(results, tuple) else (results,))]
        arrays = [
            np.concatenate([new.astype(old.dtype), part(old, slice(end, None))], axis)
            for new, old in zip(combined, arrays, strict=True)
        ]
    if not operation.keep_dims:
        arrays = [array.take(0, axis) for array in arrays]
    return [operation.to_tensor(array, each.dtype) for array, each in zip(arrays, inputs, strict=True)]
