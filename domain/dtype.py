"""The element types of a contract by wire name, and their sizes, without a GPU library."""

from __future__ import annotations

import math

ITEM_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
COMPLEX = frozenset({"complex64", "complex128"})
CODES = frozenset({"float8_e8m0fnu", "float4_e2m1fn_x2"})
"""Formats of block scaling: scales that are powers of two, and two numbers in a byte. They are drawn and compared as
bytes, because torch computes with neither."""

PACKED = "float4_e2m1fn_x2"
PACKED_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SCALE_RANGE = (0.125, 8.0)
"""Default lowest and highest scale."""

INTEGERS = frozenset(ITEM_BYTES) - FLOATS - COMPLEX - CODES - {"bool"}


def code_of(value: float, name: str) -> int:
    """The byte of a scale, or of two equal packed numbers. Raises ValueError for a value that the dtype lacks."""
    if name == PACKED:
        if abs(value) not in PACKED_SIZES:
            raise ValueError(f"{name} has no {value:g}, but {', '.join(f'{size:g}' for size in PACKED_SIZES)} and less")
        return (PACKED_SIZES.index(abs(value)) | (8 if value < 0 else 0)) * 0x11
    mantissa, exponent = math.frexp(value)
    if mantissa != 0.5 or not -126 <= exponent <= 128:
        raise ValueError(f"{name} has no {value:g}, but powers of two from 2**-127 to 2**127")
    return exponent + 126


def read_code(code: int, name: str) -> float | list[float]:
    """The scale that a byte means, NaN for 255; or the two packed numbers in it, that of the low bits first."""
    if name == PACKED:
        return [PACKED_SIZES[half & 7] * (-1 if half & 8 else 1) for half in (code & 15, code >> 4)]
    return math.nan if code == 255 else math.ldexp(1.0, code - 127)
