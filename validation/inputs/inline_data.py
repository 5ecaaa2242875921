"""Inline tensor data: base64 of raw C-order bytes, optionally zlib-compressed."""

from __future__ import annotations

import base64
import zlib

import torch

from backends.dtypes import torch_dtype
from domain.contract import TensorData


def inline_tensor(data: TensorData) -> torch.Tensor:
    """The contiguous host tensor that the data encode. Its schema let in only data of the bytes of its shape."""
    dtype = torch_dtype(data.dtype)
    raw = base64.b64decode(data.data_b64)
    if data.compress == "zlib":
        raw = zlib.decompress(raw)
    if not raw:
        return torch.empty(data.shape, dtype=dtype)
    octets = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    # A bool's memory may hold 0 and 1 only; any other byte means true.
    values = octets != 0 if dtype is torch.bool else octets.view(dtype)
    return values.reshape(data.shape)
