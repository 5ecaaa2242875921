"""Makes an IO contract from live arguments (tensors, numpy arrays, scalars, None) without importing torch or numpy."""

from __future__ import annotations

import base64
import math
import sys
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_eval_client.contract import ArgSpec, IOContract, LaunchConfig, TensorData, TensorInit, TensorSpec
from kernel_eval_client.index_sets import index_inits

DTYPES = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
        *("float8_e8m0fnu", "float4_e2m1fn_x2"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
    )
)
INLINE_BYTES = 16 << 20
"""Maximum size of a contract's inline tensors together, in raw bytes: as base64 they fit the service's 64 MiB body."""


def contract_from(
    args: Sequence[Any] | Mapping[str, Any],
    *,
    outputs: Collection[int | str] = (),
    inouts: Collection[int | str] = (),
    meta: Collection[int | str] = (),
    constants: Collection[int | str] = (),
    inline: bool | Collection[int | str] | None = None,
    launch: LaunchConfig | Mapping[str, Any] | None = None,
) -> IOContract:
    """The contract of a call with these arguments, in calling order. The keys of a mapping are the arguments' names.

    `outputs`, `inouts`, `meta` and `constants` name arguments by position or name. A constant is a tensor in a CUDA
    source's `__constant__` variable of its name.

    The contract has a float tensor's shape, dtype, strides and distribution. The service draws new values for each
    call: uniform between minimum and maximum if all have one sign, else normal with their mean and deviation. Fixed
    values would let a kernel pass that returns a remembered output.

    The contract has the values (zlib compressed) of integers and bools, since drawn ones might be invalid indices. Not
    of offsets, their lengths and segments, and permutations: the service draws these anew, by their rule. It also has
    the values of floats with an infinity or a NaN, and of the arguments that `inline` names. `inline=True` sends all
    values, `inline=False` none: the service draws standard normal ones. It never has the values of an output.

    Raises TypeError for an argument that is no tensor, array, scalar or None, and ValueError for an unknown name or
    position. ValueError also for more than 16 MiB of inline data, and for an argument that no contract can describe:
    an unknown dtype; a sparse or overlapping tensor, or one without values; a scalar that is not finite or exceeds 64
    bits.
    """
    named = list(args.items()) if isinstance(args, Mapping) else [(f"arg{i}", arg) for i, arg in enumerate(args)]
    roles = {**_positions(outputs, named, "output"), **_positions(inouts, named, "inout")}
    constexprs, variables = _positions(meta, named, "meta"), _positions(constants, named, "constant")
    chosen = _positions(() if inline is None or isinstance(inline, bool) else inline, named, "inline")
    draw_all, send_all = inline is False, inline is True
    rules = {} if send_all or draw_all else _rules(named, roles, chosen)
    specs, total = [], 0
    for position, (name, value) in enumerate(named):
        role = roles.get(position, "input")
        if not _is_tensor(value):
            specs.append(_scalar(name, value, position in constexprs))
            continue
        spec = _tensor_spec(name, value)
        if position in variables:
            spec = replace(spec, strides=None)
        if role != "output":
            init, raw = TensorInit("randn"), None
            if name in rules:
                init = rules[name]
            elif not draw_all:
                init, raw = _content(name, value, spec.dtype, send=send_all or position in chosen)
            total += len(raw or b"")
            if total > INLINE_BYTES:
                raise ValueError(
                    f"with {name!r} the tensors are {total} bytes; {INLINE_BYTES} are sent at most. Use inline=False to"
                    " have them drawn by the service, or smaller tensors"
                )
            spec = replace(spec, init=init) if raw is None else _with_data(spec, raw)
        specs.append(ArgSpec(name, "tensor", tensor_spec=spec, role=role, is_constant=position in variables))
    return IOContract(tuple(specs), LaunchConfig.from_dict(launch) if isinstance(launch, Mapping) else launch)


def _rules(named: list[tuple[str, Any]], roles: Collection[int], inlined: Collection[int]) -> dict[str, TensorInit]:
    """The index arguments that the service can draw by a rule: contiguous ones."""
    tensors = {name: value for name, value in named if _is_tensor(value)}
    integers = {
        name: value
        for position, (name, value) in enumerate(named)
        if name in tensors and position not in roles and position not in inlined
        if (spec := _tensor_spec(name, value)).dtype.startswith(("int", "uint")) and spec.strides is None
    }
    return index_inits(integers, {int(size) for value in tensors.values() for size in value.shape})


def _positions(selection: Collection[int | str], named: list[tuple[str, Any]], role: str) -> dict[int, str]:
    names = [name for name, _ in named]
    positions = {}
    for argument in selection:
        if isinstance(argument, str) and argument in names:
            positions[names.index(argument)] = role
        elif isinstance(argument, int) and -len(names) <= argument < len(names):
            positions[argument % len(names)] = role
        else:
            raise ValueError(f"{role} {argument!r} is none of the {len(names)} arguments: {', '.join(names)}")
    return positions


def _is_tensor(value: Any) -> bool:
    # numpy's scalars have a shape and a dtype too, but are arguments by value.
    return hasattr(value, "dtype") and (hasattr(value, "stride") or hasattr(value, "__setitem__"))


def _scalar(name: str, value: Any, is_meta: bool) -> ArgSpec:
    if hasattr(value, "item") and hasattr(value, "dtype"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"argument {name!r} is {value}; a contract has finite numbers. A tensor may hold it")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"argument {name!r} is {value}, which does not fit 64 bits")
    if value is None:
        return ArgSpec(name, "none", is_meta=is_meta)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return ArgSpec(name, kind.__name__, value, is_meta=is_meta)
    raise TypeError(
        f"argument {name!r} is a {type(value).__name__}; a contract has tensors, ints, floats, strings, bools and None."
        " For anything else give the kernel a get_inputs() instead"
    )


def _tensor_spec(name: str, value: Any) -> TensorSpec:
    # numpy's name without the byte order: the values are sent in this machine's order, which is the service's.
    dtype = getattr(value.dtype, "name", str(value.dtype).rpartition(".")[2])
    if dtype not in DTYPES:
        dtypes = ", ".join(sorted(DTYPES))
        raise ValueError(
            f"argument {name!r}: dtype {str(value.dtype)!r} is not known to the service; it takes {dtypes}"
        )
    layout = str(getattr(value, "layout", "strided")).rpartition(".")[2]
    if layout != "strided" or getattr(value, "is_nested", False):
        kind = "a nested tensor" if layout == "strided" else f"of the layout {layout}"
        raise ValueError(f"argument {name!r} is {kind}; a contract has strided tensors: give its parts, or to_dense()")
    shape = tuple(int(size) for size in value.shape)
    strides = _strides(value)
    plain = strides == _contiguous(shape) or 0 in shape or min(strides, default=0) < 0
    if not plain and _overlapping(shape, strides):
        raise ValueError(
            f"argument {name!r} is a view whose elements share memory (shape {list(shape)}, strides {list(strides)});"
            " only an expanded dimension, of stride 0, may: give a contiguous copy"
        )
    return TensorSpec(shape, dtype, strides=None if plain else strides)


def _overlapping(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements share memory, by the service's rule: a stride within the reach of the smaller ones."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride and size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def _strides(value: Any) -> tuple[int, ...]:
    if hasattr(value, "stride"):
        return tuple(value.stride())
    return tuple(step // value.itemsize for step in value.strides)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


def _content(name: str, value: Any, dtype: str, *, send: bool) -> tuple[TensorInit, bytes | None]:
    """How to draw the tensor, and its values if they are to be sent. Raises ValueError for an unreadable tensor."""
    try:
        init = _similar_init(value, dtype)
        return init or TensorInit("randn"), _bytes_of(value) if send or init is None else None
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the values of argument {name!r} ({type(value).__name__} on {getattr(value, 'device', 'the host')}) cannot"
            f" be read: {reason}. Give a tensor with values, or inline=False to have all drawn by the service"
        ) from error


def _bytes_of(value: Any) -> bytes:
    """The values in C order and this machine's byte order, whatever the strides and the device."""
    if hasattr(value, "detach"):
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        # A view of bytes works for every dtype, also for those that numpy lacks. torch is loaded: it made the tensor.
        return bytes(flat.view(sys.modules["torch"].uint8).numpy().tobytes())
    return bytes(value.astype(value.dtype.newbyteorder("="), copy=False).tobytes())


def _with_data(spec: TensorSpec, raw: bytes) -> TensorSpec:
    packed = base64.b64encode(zlib.compress(raw)).decode()
    data = TensorData(packed, spec.dtype, [int(size) for size in spec.shape], "zlib")
    return TensorSpec(spec.shape, spec.dtype, data=data, strides=spec.strides)


def _similar_init(value: Any, dtype: str) -> TensorInit | None:
    """How to draw floats with a similar distribution; None if only the values themselves will do."""
    if dtype.startswith(("complex", "float4")) or 0 in value.shape:
        return TensorInit("randn")
    if not dtype.startswith(("float", "bfloat")):
        return None
    values = value.detach().double() if hasattr(value, "detach") else value.astype("float64")
    low, high, mean = (float(figure) for figure in (values.min(), values.max(), values.mean()))
    deviation = math.sqrt(float(((values - mean) ** 2).mean()))
    if not all(map(math.isfinite, (low, high, mean, deviation))):
        return None
    if low == high:
        return TensorInit("full", fill_value=low)
    if low >= 0 or high <= 0:  # Scales too: the service draws powers of two between the two.
        return TensorInit("uniform", low=low, high=high)
    return TensorInit("randn", mean=_rounded(mean), std=_rounded(deviation))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
