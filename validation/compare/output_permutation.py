"""Finds outputs that are right but in another order, such as a tuple packed in another order."""

from __future__ import annotations

import torch

from validation.compare.comparison import compare
from validation.compare.tolerance import Tolerance

MAX_OUTPUTS = 8
"""Maximum number of outputs for which every order is tried."""


def describe_permutation(expected: list[torch.Tensor], actual: list[torch.Tensor], tolerance: Tolerance) -> str | None:
    """A sentence that names the order of the expected outputs; None where they are not all present or already in
    order."""
    if not 1 < len(expected) == len(actual) <= MAX_OUTPUTS:
        return None
    unmatched = list(range(len(actual)))
    positions = []
    for want in expected:
        position = next(
            (position for position in unmatched if compare([want], [actual[position]], tolerance).passed), None
        )
        if position is None:
            return None
        unmatched.remove(position)
        positions.append(position)
    if positions == sorted(positions):
        return None
    order = ", ".join(str(position) for position in positions)
    return (
        f"the outputs are right in another order (the reference's are the kernel's {order}): return them in the "
        "reference's, a dict's under its keys"
    )
