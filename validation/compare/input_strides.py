"""Explains a wrong result of a kernel that may have computed addresses from the shape of an input that is a view."""

from __future__ import annotations

import torch

STRIDES_MESSAGE = (
    "{which} not contiguous: a kernel that computes addresses from the shape alone reads other elements, so pass "
    ".stride() to it, or call .contiguous() first"
)
MAX_INPUTS = 3
"""Maximum number of inputs that the message names."""


def explain_strides(inputs: list[torch.Tensor]) -> str | None:
    """The explanation, which names the inputs that are not contiguous; None where all are."""
    views = [
        f"input tensor {number} (shape {list(tensor.shape)}, strides {list(tensor.stride())})"
        for number, tensor in enumerate(inputs)
        if not tensor.is_contiguous()
    ]
    if not views:
        return None
    more = ["others"] if len(views) > MAX_INPUTS else []
    named = [*views[:MAX_INPUTS], *more]
    return STRIDES_MESSAGE.format(which=f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'}")
