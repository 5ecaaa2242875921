"""Explains indices that differ while the values beside them agree: a sort may name any of several equal values."""

from __future__ import annotations

import torch

from validation.compare.bitwise import identical

TIES_MESSAGE = (
    "the values are the reference's and only the indices beside them differ: of equal values either may be named, so "
    "make the reference's order certain (torch.sort with stable=True), or return the values alone"
)


def explain_ties(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> str | None:
    """The explanation, where all float outputs have equal bits and only index outputs of the same shapes differ; else
    None."""
    if len(expected) != len(actual):
        return None
    values = {want.shape for want in expected if want.is_floating_point()}
    unlike = [want for want, got in zip(expected, actual, strict=True) if not identical(want, got)]
    indices = all(want.dtype in (torch.int32, torch.int64) and want.shape in values for want in unlike)
    return TIES_MESSAGE if unlike and indices else None
