"""Rounds tensors to a lower precision within their own dtype, as a silent downcast does."""

from __future__ import annotations

import torch

TF32_DROPPED_BITS = 13
"""TF32 keeps 10 of float32's 23 fraction bits."""

CASTS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e5m2": torch.float8_e5m2,
}

TF32 = "tf32"

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, TF32: 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}

LOWER: dict[torch.dtype, tuple[str, ...]] = {
    torch.float64: ("bfloat16", "float16", TF32, "float32"),
    torch.float32: ("bfloat16", "float16", TF32),
}
"""The precisions below a dtype that kernels fall back to, coarsest first."""

COARSER_OF_SAME_SIZE = {torch.float16: "bfloat16", torch.float8_e4m3fn: "float8_e5m2"}
"""The format of as many bits with fewer of them for the fraction. Its error is at most eight times the dtype's own, too
little to tell it by."""


def lower_precisions(dtype: torch.dtype) -> tuple[str, ...]:
    """Names that `rounded` takes for a tensor of that dtype; empty for dtypes without a lower one to distinguish."""
    return LOWER.get(dtype, ())


def rounded(tensor: torch.Tensor, precision: str) -> torch.Tensor:
    """A tensor of the same dtype with every element rounded to `precision`; a tensor that is not floating is returned
    as is."""
    if not tensor.is_floating_point():
        return tensor
    if precision in CASTS:
        return tensor.to(CASTS[precision]).to(tensor.dtype)
    words = tensor.to(torch.float32).view(torch.int32) + (1 << TF32_DROPPED_BITS - 1)
    whole = (words >> TF32_DROPPED_BITS << TF32_DROPPED_BITS).view(torch.float32)
    return torch.where(tensor.isfinite(), whole.to(tensor.dtype), tensor)
