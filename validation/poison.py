"""A pattern that fills outputs before a call, so that what the kernel did not write is seen.

Floating and complex elements get bytes of 0xFF, a NaN in every such dtype, and one that no arithmetic gives on a GPU
(its own NaNs are 0x7FFFFFFF and the like). Integers and bools get bytes of 0xA5, because -1 is a common answer.
"""

from __future__ import annotations

import torch

from validation.bits import bits

FLOATING_BYTE = 0xFF
INTEGER_BYTE = 0xA5


def fill(tensor: torch.Tensor) -> None:
    """Overwrites every element in place; the gaps of a strided tensor stay as they are."""
    bits(tensor).fill_(_pattern(tensor))


def untouched(tensor: torch.Tensor) -> float:
    """The fraction of elements, 0.0 to 1.0, that still hold the pattern; 0.0 for a tensor without elements."""
    if tensor.numel() == 0:
        return 0.0
    raw = bits(tensor)
    return int((raw == _pattern(tensor)).sum().item()) / raw.numel()


def _pattern(tensor: torch.Tensor) -> int:
    numeric = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    byte = FLOATING_BYTE if numeric else INTEGER_BYTE
    return int.from_bytes(bytes([byte]) * bits(tensor).element_size(), "little", signed=True)
