"""A byte pattern that fills outputs before a call and reveals elements that the kernel did not write.

Floating and complex elements get bytes of 0xFF: a NaN in every such dtype, and one that no GPU arithmetic produces (GPU
NaNs are 0x7FFFFFFF and the like). Integers, bools and codes (domain/dtype.py) get bytes of 0xA5, because -1 is a common
output.

Where NaN is the right output, that pattern reveals nothing. A second pattern for floating and complex elements, bytes
of 0x7B, is a large finite number in every such dtype.
"""

from __future__ import annotations

import torch

from backends.dtypes import is_computed
from validation.compare.bitwise import EQUALITY_BYTES, bits, blocks, count_true

FLOATING_BYTE = 0xFF
FINITE_BYTE = 0x7B
INTEGER_BYTE = 0xA5


def fill(tensor: torch.Tensor, *, finite: bool = False) -> None:
    """Overwrites every element in place; the gaps of a strided tensor stay as they are."""
    bits(tensor).fill_(_patterns(tensor)[-1 if finite else 0])


def unwritten_fraction(tensor: torch.Tensor) -> float:
    """The fraction of elements, 0.0 to 1.0, that still hold a pattern; 0.0 for a tensor without elements."""
    if tensor.numel() == 0:
        return 0.0
    raw = bits(tensor)
    first, *others = (_count(raw, pattern) / raw.numel() for pattern in _patterns(tensor))
    if raw.element_size() == 1:
        # A one-byte number may be a legitimate output, unless all elements hold it.
        others = [share for share in others if share == 1.0]
    return max(first, *others, 0.0)


def _count(raw: torch.Tensor, pattern: int) -> int:
    return sum(count_true(block == pattern) for (block,) in blocks([raw], EQUALITY_BYTES))


def _patterns(tensor: torch.Tensor) -> list[int]:
    numeric = is_computed(tensor) or tensor.dtype.is_complex
    size = bits(tensor).element_size()
    return [
        int.from_bytes(bytes([byte]) * size, "little", signed=True)
        for byte in ((FLOATING_BYTE, FINITE_BYTE) if numeric else (INTEGER_BYTE,))
    ]
