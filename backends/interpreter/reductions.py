"""Has Triton's interpreter reduce by a function of the source in whole blocks: element by element takes minutes."""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime.interpreter import ReduceOps

_original_reduce = ReduceOps.generic_reduce


def install() -> None:
    """Patches this process and its forks."""
    ReduceOps.generic_reduce = _reduce


def _reduce(operation: Any, inputs: tuple[Any, ...]) -> list[Any]:
    if operation.axis is None:
        return _original_reduce(operation, inputs)  # type: ignore[no-any-return]
    try:
        return _reduce_by_pairs(operation, inputs)
    except ValueError:  # A function that branches on a value takes one element at a time.
        return _original_reduce(operation, inputs)  # type: ignore[no-any-return]


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
        found = operation.combine_fn.fn(*sides)
        combined = [each.handle.data for each in (found if isinstance(found, tuple) else (found,))]
        arrays = [
            np.concatenate([new.astype(old.dtype), part(old, slice(end, None))], axis)
            for new, old in zip(combined, arrays, strict=True)
        ]
    if not operation.keep_dims:
        arrays = [array.take(0, axis) for array in arrays]
    return [operation.to_tensor(array, each.dtype) for array, each in zip(arrays, inputs, strict=True)]
