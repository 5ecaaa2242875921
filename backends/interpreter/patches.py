"""Corrects Triton's interpreter where its results differ from a GPU's.

The interpreter replaces the GPU on a worker without one. Unpatched, it would have right kernels judged wrong: it adds
the bit patterns of bfloat16 numbers, rounds float8 wrongly, and passes float scalars on as Python numbers. It takes one
block for `and` of two, lacks libdevice, and knows `tl.cast` by that name alone, not after `cast = tl.cast`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, TensorHandle

from backends.interpreter import block_operators, device_guard, gpu_functions, launches, libdevice, loops, reductions
from backends.source.error_report import NotInterpreted

_Array = np.ndarray[Any, Any]

_STORED_AS_BITS = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
"""Types that numpy lacks: the interpreter stores their bits as unsigned numbers."""

_BITS = {2: (np.uint16, torch.int16), 1: (np.uint8, torch.uint8)}
_OTHER_ROUNDING = "RTZ"

_original_cast = InterpreterBuilder.cast_impl
_OPERATIONS = {"binary_op": 0, "ternary_op": 2, "unary_op": 0, "create_fma": 2}
"""Operations of the interpreter, and which operand has the result's type."""
_original_dot = InterpreterBuilder.create_dot
_original_fp_to_fp = InterpreterBuilder.create_fp_to_fp
_original_atomic = InterpreterBuilder.create_atomic_rmw
_Reduction = ReduceOps.__base__  # The base of scans too; its name differs between versions of Triton.
_original_reduction = _Reduction.apply
_original_argument = interpreter._implicit_cvt
_original_patch_lang = interpreter._patch_lang
_LANGUAGE = {id(value): (of, name) for of in (tl.math, tl) for name, value in vars(of).items() if callable(value)}


@cache
def install() -> None:
    """Patches this process and its forks, once. Kernels for a GPU are compiled and never use the interpreter."""
    InterpreterBuilder.cast_impl = _cast
    for name, operand in _OPERATIONS.items():
        setattr(InterpreterBuilder, name, _in_float32(getattr(InterpreterBuilder, name), operand))
    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.create_fp_to_fp = _fp_to_fp
    InterpreterBuilder.create_atomic_rmw = _atomic
    _Reduction.apply = _reduction
    # A GPU gives the number where one of two is a NaN.
    InterpreterBuilder.create_maxnumf = lambda builder, left, right: builder.binary_op(left, right, np.fmax)
    InterpreterBuilder.create_minnumf = lambda builder, left, right: builder.binary_op(left, right, np.fmin)
    InterpreterBuilder.get_bf16 = lambda builder, value: _encoded(np.array([value], np.float32), tl.bfloat16)
    interpreter._implicit_cvt = _argument
    interpreter._patch_lang = _patch_language
    block_operators.install()
    device_guard.install()
    gpu_functions.install()
    launches.install()
    loops.install()
    reductions.install()
    libdevice.install(_decoded, _as_stored)


def _patch_language(function: Any) -> Any:
    """Replaces Triton's functions for a call, and those that the source holds under other names too."""
    names = function.__globals__
    held = {name: found for name, value in names.items() if (found := _LANGUAGE.get(id(value)))}
    scope = _original_patch_lang(function)
    for name, (module, attribute) in held.items():
        names[name] = getattr(module, attribute)
    return scope


def _argument(value: Any) -> Any:
    """A kernel's argument: a float becomes float32 as on a GPU, and a bool one bit."""
    if isinstance(value, bool):
        return tl.tensor(TensorHandle(np.array([value], np.bool_), tl.int1), tl.int1)
    if isinstance(value, float):
        return tl.tensor(TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)
    return _original_argument(value)


def _kind(dtype: tl.dtype) -> torch.dtype | None:
    """torch's dtype for a type that numpy lacks, else None. Types of pointers have no hash."""
    return None if dtype.scalar.is_ptr() else _STORED_AS_BITS.get(dtype.scalar)


def _stores_bit_patterns(handle: TensorHandle) -> bool:
    """Whether the handle stores numbers as bit patterns. Booleans of a comparison do not count."""
    kind = _kind(handle.dtype)
    return kind is not None and handle.data.dtype == _BITS[kind.itemsize][0]


def _decoded(handle: TensorHandle) -> _Array:
    """The handle's numbers, as float32 where numpy lacks their type."""
    data: _Array = handle.data
    if not _stores_bit_patterns(handle):
        return data
    kind = _STORED_AS_BITS[handle.dtype.scalar]
    # The copy has a memory order that torch accepts.
    bits = torch.from_numpy(np.array(data.view(np.int16 if data.dtype == np.uint16 else np.uint8)))
    return bits.view(kind).float().numpy()


def _encoded(values: _Array, dtype: tl.dtype) -> TensorHandle:
    """The numbers rounded to the nearest; for float8, too large ones become the largest, as on a GPU."""
    kind = _STORED_AS_BITS[dtype.scalar]
    rounded = torch.from_numpy(np.array(values, np.float32))
    if kind.itemsize == 1:
        largest = torch.finfo(kind).max
        rounded = rounded.clamp(-largest, largest)
    unsigned, stored = _BITS[kind.itemsize]
    return TensorHandle(rounded.to(kind).view(stored).numpy().view(unsigned), dtype.scalar)


def _as_stored(values: _Array, dtype: tl.dtype) -> TensorHandle:
    if _kind(dtype) is not None:
        return _encoded(values, dtype)
    return TensorHandle(values.astype(interpreter._get_np_dtype(dtype.scalar)), dtype.scalar)


def _plain(handle: TensorHandle) -> TensorHandle:
    """The same numbers as float32."""
    return TensorHandle(_decoded(handle), tl.float32) if _stores_bit_patterns(handle) else handle


def _like(result: TensorHandle, dtype: tl.dtype) -> TensorHandle:
    """A float32 result converted to that type; truth values stay."""
    if result.data.dtype == np.bool_:
        return TensorHandle(result.data, tl.int1)
    return _encoded(result.data, dtype)


def _cast(builder: InterpreterBuilder, value: TensorHandle, dtype: tl.dtype) -> TensorHandle:
    if _kind(dtype) is not None:
        return _encoded(_decoded(value), dtype)
    if _stores_bit_patterns(value):
        return _as_stored(_decoded(value), dtype)
    if _kind(value.dtype) is not None:
        return _as_stored(value.data, dtype)
    return _original_cast(builder, value, dtype)


def _fp_to_fp(builder: InterpreterBuilder, value: TensorHandle, dtype: tl.dtype, rounding: Any) -> TensorHandle:
    stored_as_bits = _kind(dtype) is not None or _stores_bit_patterns(value)
    if not stored_as_bits or _OTHER_ROUNDING in str(rounding):
        return _original_fp_to_fp(builder, value, dtype, rounding)
    return _cast(builder, value, dtype)


def _in_float32(original: Callable[..., TensorHandle], operand: int) -> Callable[..., TensorHandle]:
    """The operation on the same numbers as float32, where that operand stores bit patterns."""

    def operation(builder: InterpreterBuilder, *arguments: Any) -> TensorHandle:
        handle = arguments[operand]
        if not _stores_bit_patterns(handle):
            return original(builder, *arguments)
        plain = (_plain(each) if isinstance(each, TensorHandle) else each for each in arguments)
        return _like(original(builder, *plain), handle.dtype)

    return operation


def _dot(builder: InterpreterBuilder, a: TensorHandle, b: TensorHandle, c: TensorHandle, *options: Any) -> TensorHandle:
    return _original_dot(builder, _plain(a), _plain(b), c, *options)


def _atomic(builder: InterpreterBuilder, kind: Any, pointer: TensorHandle, value: TensorHandle, *options: Any) -> Any:
    if _stores_bit_patterns(value):
        raise NotInterpreted(f"an atomic operation on {value.dtype.scalar}")
    try:
        return _original_atomic(builder, kind, pointer, value, *options)
    except ValueError as error:  # It knows fewer operations on fewer types than a GPU.
        raise NotInterpreted(f"an atomic operation on {value.dtype.scalar}") from error


def _reduction(operation: Any, inputs: Any) -> Any:
    """Implements `tl.reduce` and `tl.associative_scan`, and with them `tl.sum`."""
    if isinstance(inputs, tuple) and any(_stores_bit_patterns(tensor.handle) for tensor in inputs):
        plain = tuple(tensor.to(tl.float32) if _stores_bit_patterns(tensor.handle) else tensor for tensor in inputs)
        results = _original_reduction(operation, plain)
        return tuple(result.to(tensor.dtype) for result, tensor in zip(results, inputs, strict=True))
    return _original_reduction(operation, inputs)
