"""Copies content into the memory layout of another tensor."""

from __future__ import annotations

import torch

from backends.dtypes import wire_name
from domain.value import TensorRef
from sandbox.protocol.arena import stored_shape
from validation.inputs import poison_fill


def with_layout_of(like: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """Copies `stored` into the memory layout and dtype of `like`; gaps hold poison."""
    ref = TensorRef(wire_name(like.dtype), tuple(like.shape), like.stride())
    memory = torch.empty(ref.span // like.element_size(), dtype=like.dtype, device=like.device)
    poison_fill.fill(memory)
    tensor = memory.as_strided(like.shape, like.stride())
    tensor.as_strided(stored.shape, like.stride()).copy_(stored)
    return tensor


def with_zeros_of(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, of the same layout, with zeros written where `like` has some."""
    zeros, stored = (one.as_strided(stored_shape(like), like.stride()) for one in (like, tensor))
    stored.masked_fill_(zeros == 0, 0)
    return tensor
