"""A tensor in a contract: shape, dtype, strides, and content."""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from dataclasses import dataclass
from typing import Any

from flask import g, has_request_context
from marshmallow import ValidationError, post_load, validates_schema
from marshmallow.validate import Length, Range

from api.schemas.fields import (
    INT64_LOW,
    MISSING,
    UINT64_HIGH,
    Anything,
    Items,
    LenientSchema,
    Part,
    RealNumber,
    Text,
    WholeNumber,
    abbreviate,
    one_of,
)
from domain.contract import INDEX_KINDS
from domain.dtype import CODES, INTEGERS, ITEM_BYTES, PACKED, SCALE_RANGE, code_of
from domain.value import MAX_BYTES, MAX_RANK

CODE_KINDS = ("randn", "uniform", "zeros", "ones", "full", "empty")
INIT_KINDS = ("randn", "uniform", "randint", "zeros", "ones", "full", "arange", "empty", *INDEX_KINDS)
MAX_TENSOR = 16 << 30
MAX_INLINE = 256 << 20
"""Maximum bytes of one inline tensor once inflated: the limit of the body does not bound the inflated size."""

MAX_INFLATED = 2 * MAX_INLINE
"""Maximum bytes that one HTTP request may inflate in all its bodies and arguments: one or two seconds of a core.

Twice the largest tensor, so that a candidate and its reference may both have one.
"""

_INFLATE_STEP = 1 << 20
_RANK = Length(max=MAX_RANK, error="has more than {max} dimensions")
_WHITESPACE = str.maketrans("", "", " \t\r\n")


@dataclass
class Inflation:
    """Bytes that an HTTP request has inflated so far."""

    size: int = 0


def _inflation() -> Inflation:
    """The request's own count; outside of a request, as in a test, each tensor has one of its own."""
    if not has_request_context():
        return Inflation()
    if "inflation" not in g:
        g.inflation = Inflation()
    inflation: Inflation = g.inflation
    return inflation


class TensorInitSchema(LenientSchema):
    """How a tensor's content is drawn; parameters that the kind does not use are ignored."""

    kind = Text(load_default="randn", allow_none=True, validate=one_of(INIT_KINDS))
    seed = WholeNumber(allow_none=True, metadata={"description": "Absent: drawn from the request and the position."})
    mean = RealNumber(allow_none=True)
    std = RealNumber(allow_none=True, validate=Range(0, error="must not be negative"))
    low = RealNumber(allow_none=True)
    high = RealNumber(allow_none=True)
    fill_value = Anything(allow_none=True, metadata={"type": ["number", "boolean"]})
    start = RealNumber(allow_none=True)
    step = RealNumber(allow_none=True)
    total = WholeNumber(0, allow_none=True, metadata={"description": "The sum of drawn lengths."})
    of = Text(allow_none=True, metadata={"description": "The argument whose lengths or offsets these numbers follow."})

    @validates_schema
    def _fill_is_a_number(self, data: dict[str, Any], **_: Any) -> None:
        fill = data.get("fill_value")
        if fill is not None and not isinstance(fill, (int, float)):
            raise ValidationError(f"must be a number or a boolean, not {abbreviate(fill)}", "fill_value")
        if isinstance(fill, int) and not INT64_LOW <= fill <= UINT64_HIGH:
            raise ValidationError(
                f"must fit 64 bits, not {abbreviate(fill)}; write a float as one, such as 1e30", "fill_value"
            )


class TensorDataSchema(LenientSchema):
    """Inline content: base64 of the raw bytes in C order, optionally zlib-compressed."""

    data_b64 = Text(required=True)
    dtype = Text(load_default="float32", allow_none=True, validate=one_of(ITEM_BYTES))
    shape = Items(WholeNumber(0, MAX_BYTES), load_default=list, allow_none=True, validate=_RANK)
    compress = Text(load_default="none", allow_none=True, validate=one_of(("none", "zlib")))

    @post_load
    def _fits(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        expected = math.prod(data["shape"] or ()) * ITEM_BYTES[data["dtype"] or "float32"]
        if expected > MAX_INLINE:
            raise ValidationError(f"is {expected} bytes of inline data; at most {MAX_INLINE} are taken", "shape")
        text = data["data_b64"].translate(_WHITESPACE)
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValidationError(f"is not base64: {error}", "data_b64") from error
        size = _inflated_size(raw, expected) if data["compress"] == "zlib" else len(raw)
        if size != expected:
            size_text = f"more than {expected}" if size > expected else size
            raise ValidationError(f"holds {size_text} bytes; shape and dtype need {expected}", "data_b64")
        return {**data, "data_b64": text}


def _inflated_size(raw: bytes, expected: int) -> int:
    """Bytes that `raw` inflates to, counted without storing them and only just beyond `expected`.

    They count towards the request's limit, also where the tensor is rejected afterwards.
    """
    inflation = _inflation()
    if inflation.size >= MAX_INFLATED or inflation.size + expected > MAX_INFLATED:
        raise ValidationError(
            f"is {expected} bytes once inflated, after {inflation.size} of the tensors before it; one HTTP request may"
            f" have {MAX_INFLATED} in all: have it drawn (`init`), or send fewer kernels in one request",
            "data_b64",
        )
    stream, pending, size = zlib.decompressobj(), raw, 0
    try:
        while not stream.eof and size <= expected:
            piece = stream.decompress(pending, _INFLATE_STEP)
            pending = stream.unconsumed_tail
            size += len(piece)
            inflation.size += len(piece)
            if not piece and not pending and not stream.eof:
                raise ValidationError("ends before its zlib stream does", "data_b64")
    except zlib.error as error:
        raise ValidationError(f"is not a zlib stream: {error}", "data_b64") from error
    if stream.unused_data:
        raise ValidationError("goes on after its zlib stream", "data_b64")
    return size


class TensorSpecSchema(LenientSchema):
    """One tensor. `data` takes precedence over `init`, and its shape and dtype over those beside it."""

    shape = Items(
        WholeNumber(0, MAX_BYTES),
        load_default=list,
        allow_none=True,
        validate=_RANK,
        metadata={"description": "Sizes; zero-length dimensions are allowed; [] is a scalar."},
    )
    dtype = Text(load_default="float32", allow_none=True, validate=one_of(ITEM_BYTES))
    strides = Items(
        WholeNumber(0, MAX_BYTES),
        allow_none=True,
        validate=_RANK,
        metadata={"description": "In elements, one for each dimension; absent: C-contiguous."},
    )
    init = Part(TensorInitSchema, allow_none=True)
    data = Part(TensorDataSchema, allow_none=True)

    @validates_schema
    def _size(self, data: dict[str, Any], **_: Any) -> None:
        content = data.get("data") or data
        shape: list[int] = content.get("shape") or []
        strides: list[int] | None = data.get("strides")
        if strides is not None and len(strides) != len(shape):
            raise ValidationError(f"has {len(strides)} entries; the shape has {len(shape)}", "strides")
        dtype = content.get("dtype") or "float32"
        if strides is not None and 0 not in shape:
            elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        else:
            elements = math.prod(shape)
        if elements * ITEM_BYTES[dtype] > MAX_TENSOR:
            raise ValidationError(f"is more than {MAX_TENSOR} bytes ({MAX_TENSOR >> 30} GiB) of {dtype}", "shape")

    @validates_schema
    def _range(self, data: dict[str, Any], **_: Any) -> None:
        init, dtype = data.get("init"), data.get("dtype") or "float32"
        if not init or data.get("data"):
            return
        if dtype in CODES:
            _check_codes(init, dtype)
        bounds = _bounds(init.get("kind") or "randn", dtype)
        if bounds is None:
            return
        low = bounds[0] if init.get("low") is None else init["low"]
        high = bounds[1] if init.get("high") is None else init["high"]
        # The original draws uniform integers from low..high with both ends, so there equal bounds are a constant.
        constant = low == high and init.get("kind") == "uniform" and (dtype in INTEGERS or dtype in CODES)
        if low >= high and not constant:
            raise ValidationError({"init": {"high": [f"must be above low: low is {low:g}, high is {high:g}"]}})


def _check_codes(init: dict[str, Any], dtype: str) -> None:
    """Raises ValidationError for a kind or a value that a type of `CODES` lacks."""
    kind = init.get("kind") or "randn"
    if kind not in CODE_KINDS:
        raise ValidationError({"init": {"kind": [f"must be one of {', '.join(CODE_KINDS)} for {dtype}, not {kind}"]}})
    values = {"full": ("fill_value",), "zeros": ("kind",)}.get(kind, () if dtype == PACKED else ("low", "high"))
    for name in values:
        value = init.get(name)
        try:
            if value is not None or name == "fill_value":
                code_of(0.0 if kind == "zeros" or value is None else float(value), dtype)
        except ValueError as error:
            raise ValidationError({"init": {name: [str(error)]}}) from error


def _bounds(kind: str, dtype: str) -> tuple[float, float] | None:
    """The default bounds of a kind that draws from a range; None for the other kinds."""
    if dtype in CODES:
        return SCALE_RANGE if dtype != PACKED and kind in ("randn", "uniform") else None
    if kind == "uniform":
        return (0, 100) if dtype in INTEGERS else (0, 1)
    return (0, 100) if kind == "randint" else None


def require_spec(argument: dict[str, Any]) -> None:
    """Raises ValidationError for a tensor argument without a tensor_spec."""
    if argument.get("tensor_spec") is None:
        belongs = next((f"; `{name}` belongs into it" for name in ("shape", "dtype") if name in argument), "")
        raise ValidationError(f'{MISSING} for type "tensor"{belongs}', "tensor_spec")
