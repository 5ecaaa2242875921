"""Has Triton's interpreter reduce and scan by a function of the source in whole blocks: elements take minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import ReduceOps, ScanOps

_original_reduce = ReduceOps.generic_reduce
_original_scan = ScanOps.generic_scan

_Array = np.ndarray[Any, Any]


def install() -> None:
    """Patches this process and its forks."""
    ReduceOps.generic_reduce = _reduce
    ScanOps.generic_scan = _scan


def _reduce(operation: Any, inputs: tuple[Any, ...]) -> list[Any]:
    if operation.axis is None:
        return _original_reduce(operation, inputs)  # type: ignore[no-any-return]
    return _in_blocks(_reduce_by_pairs, _original_reduce, operation, inputs)


def _scan(operation: Any, inputs: tuple[Any, ...]) -> list[Any]:
    return _in_blocks(_scan_by_doubling, _original_scan, operation, inputs)


def _in_blocks(in_blocks: Callable[..., Any], by_element: Callable[..., Any], operation: Any, inputs: Any) -> list[Any]:
    operation.axis = range(len(inputs[0].shape))[operation.axis]  # The interpreter takes no negative axis here.
    try:
        with _no_branches_on_blocks():
            return in_blocks(operation, inputs)  # type: ignore[no-any-return]
    except Exception:  # A function that branches on a value takes one element at a time.
        return by_element(operation, inputs)  # type: ignore[no-any-return]


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
    while (length := arrays[0].shape[axis]) > 1:
        end = length - length % 2
        pairs = [[_part(array, axis, slice(start, end, 2)) for array in arrays] for start in (0, 1)]
        arrays = [
            np.concatenate([new, _part(old, axis, slice(end, None))], axis)
            for new, old in zip(_combined(operation, inputs, *pairs), arrays, strict=True)
        ]
    if not operation.keep_dims:
        arrays = [array.take(0, axis) for array in arrays]
    return [operation.to_tensor(array, each.dtype) for array, each in zip(arrays, inputs, strict=True)]


def _scan_by_doubling(operation: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Combines each element with what the 1, 2, 4, … before it combine to: the function is associative."""
    axis, arrays = operation.axis, [each.handle.data for each in inputs]
    step = 1
    while step < (length := arrays[0].shape[axis]):
        # Whole blocks, whose sizes are powers of two. What the first elements combine to is left out.
        before = [np.roll(array, step, axis) for array in arrays]
        arrays = [
            np.concatenate([_part(old, axis, slice(0, step)), _part(new, axis, slice(step, length))], axis)
            for new, old in zip(_combined(operation, inputs, before, arrays), arrays, strict=True)
        ]
        step *= 2
    return [operation.to_tensor(array, each.dtype) for array, each in zip(arrays, inputs, strict=True)]


def _part(array: _Array, axis: int, which: slice) -> _Array:
    return array[(slice(None),) * axis + (which,)]


def _combined(operation: Any, inputs: tuple[Any, ...], *sides: list[_Array]) -> list[_Array]:
    """What the source's function gives for the arrays of both sides, in their own dtypes."""
    arguments = [
        operation.to_tensor(array, each.dtype) for side in sides for array, each in zip(side, inputs, strict=True)
    ]
    found = operation.combine_fn.fn(*arguments)
    results = found if isinstance(found, tuple) else (found,)
    return [new.handle.data.astype(old.dtype) for new, old in zip(results, sides[0], strict=True)]
