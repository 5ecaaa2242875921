"""Indices that differ while the values beside them agree: of equal values, a sort may name any."""

from __future__ import annotations

import torch

from validation.bits import identical

TIES = (
    "the values are the reference's and only the indices beside them differ: of equal values either may be named, so "
    "make the reference's order certain (torch.sort with stable=True), or return the values alone"
)


def tied(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> str | None:
    """What to say where every output of floats has the same bits and integers of such an output's shape have not."""
    pairs = list(zip(expected, actual, strict=False))
    values = [pair for pair in pairs if pair[0].is_floating_point()]
    shapes = {want.shape for want, _ in values}
    unlike = [want for want, got in pairs if not identical(want, got)]
    if not unlike or len(expected) != len(actual):
        return None
    indices = all(want.dtype in (torch.int32, torch.int64) and want.shape in shapes for want in unlike)
    return TIES if indices else None
