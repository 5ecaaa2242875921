"""Tensors as raw bits: the only equality under which a NaN equals itself and -0.0 differs from 0.0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

EQUALITY_BYTES = 1 << 26
"""Maximum bytes compared in one equality test (64 MiB): the mask, and a copy of non-contiguous input, take that much.
"""

COUNTED = 1 << 24
"""Maximum elements of a mask counted at once: torch's sum first converts each to four bytes (64 MiB)."""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same memory as signed integers of the element's size (complex128: two int64 per element)."""
    if tensor.dtype is torch.complex128:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_SAME_SIZE[tensor.element_size()])


def pieces(one: torch.Tensor, other: torch.Tensor, limit: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Cuts two tensors of one shape into the same pieces: yields (flat index of the first element, 1-D piece, 1-D
    piece).

    Pieces come in C order and have at most `limit` elements. Only a non-contiguous piece is copied, which bounds
    memory.
    """
    start = 0
    for a, b in blocks([one, other], limit):
        yield start, a.reshape(-1), b.reshape(-1)
        start += a.numel()


def blocks(
    tensors: Sequence[torch.Tensor], limit: int, *, whole_rows: bool = False
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cuts tensors of one shape into the same views, in C order, of at most `limit` elements each. Copies nothing.

    With `whole_rows` a block has no part of a row, however long that is, and only leading dimensions have to agree.
    """
    first = tensors[0]
    if not first.numel():
        return
    if not whole_rows and first.dim() > 1 and all(tensor.is_contiguous() for tensor in tensors):
        yield from blocks([tensor.view(-1) for tensor in tensors], limit)
    elif first.numel() <= limit or (whole_rows and first.dim() < 2):
        yield tuple(tensors)
    elif first.shape[0] == 1:
        yield from blocks([tensor[0] for tensor in tensors], limit, whole_rows=whole_rows)
    else:
        row = first.numel() // first.shape[0]
        for parts in zip(*(torch.split(tensor, max(1, limit // row)) for tensor in tensors), strict=True):
            yield from blocks(parts, limit, whole_rows=whole_rows)


def count_true(mask: torch.Tensor) -> int:
    """The number of true elements of a mask. Counts piece by piece, because torch's sum converts its input to int64."""
    counts = [block.view(torch.int8).sum(dtype=torch.int32) for (block,) in blocks([mask], COUNTED)]
    return int(torch.stack(counts).sum()) if counts else 0


def identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both have the same dtype, shape and bits, wherever the elements lie in memory."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return all(torch.equal(a, b) for _, a, b in _equality_pieces(one, other))


def differing(one: torch.Tensor, other: torch.Tensor, limit: int) -> torch.Tensor:
    """A bool for each row: whether two stacks of one dtype and shape, [rows, *shape], differ there in any bit.

    The result stays on the tensors' device; a GPU is not synchronised. Short rows are compared together, up to `limit`
    elements.
    """
    size = max(1, limit // max(1, math.prod(one.shape[1:])))
    pairs = zip(torch.split(bits(one), size), torch.split(bits(other), size), strict=True)
    return torch.cat([(_differing_rows if len(a) > 1 else _differing_row)(a, b) for a, b in pairs])


def _differing_rows(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.is_cpu and torch.equal(one, other):  # Allocates no mask.
        return torch.zeros(len(one), dtype=torch.bool)
    return (one != other).reshape(len(one), math.prod(one.shape[1:])).any(dim=-1)


def _differing_row(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.is_cpu:  # Allocates no mask and stops at the first difference.
        return torch.tensor([not identical(one, other)])
    differences = [(a != b).any() for _, a, b in _equality_pieces(one, other)]
    return (
        torch.stack(differences).any(dim=0, keepdim=True)
        if differences
        else torch.zeros(1, dtype=torch.bool, device=one.device)
    )


def _equality_pieces(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    return pieces(bits(one), bits(other), EQUALITY_BYTES // one.element_size())
