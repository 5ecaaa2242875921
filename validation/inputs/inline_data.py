"""Inline tensor data: base64 of raw C-order bytes, optionally zlib-compressed."""

from __future__ import annotations

import base64
import binascii
import math
import zlib

import torch

from backends.dtypes import torch_dtype
from domain.contract import TensorData
from domain.dtype import ITEM_BYTES


def inline_tensor(data: TensorData) -> torch.Tensor:
    """The contiguous host tensor that the data encode; ValueError unless they decode to exactly the bytes of its
    shape."""
    dtype = torch_dtype(data.dtype)
    size = math.prod(data.shape) * ITEM_BYTES[data.dtype]
    raw = _bytes(data, size)
    if len(raw) != size:
        shape = list(data.shape)
        raise ValueError(f"data_b64 holds {_count(len(raw), size)} bytes, but {shape} of {data.dtype} takes {size}")
    if size == 0:
        return torch.empty(data.shape, dtype=dtype)
    octets = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    # A bool's memory may hold 0 and 1 only; any other byte means true.
    values = octets != 0 if dtype is torch.bool else octets.view(dtype)
    return values.reshape(data.shape)


def _bytes(data: TensorData, size: int) -> bytes:
    try:
        raw = base64.b64decode("".join(data.data_b64.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"data_b64 is not base64: {error}") from error
    if data.compress == "none":
        return raw
    if data.compress != "zlib":
        raise ValueError(f"compress is 'none' or 'zlib', not {data.compress!r}")
    try:
        # One extra byte shows that there are too many, however far the rest would inflate.
        return zlib.decompressobj().decompress(raw, size + 1)
    except zlib.error as error:
        raise ValueError(f"data_b64 is not zlib-compressed: {error}") from error


def _count(size_in_bytes: int, size: int) -> str:
    return str(size_in_bytes) if size_in_bytes <= size else f"more than {size}"
