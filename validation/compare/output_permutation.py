"""Outputs that are right, but stand in another order: as of a tuple that was packed in another one."""

from __future__ import annotations

import torch

from validation.compare.comparison import compare
from validation.compare.tolerance import Tolerance

MOST = 8
"""Outputs at most that are tried in every place."""


def other_order(expected: list[torch.Tensor], actual: list[torch.Tensor], tolerance: Tolerance) -> str | None:
    """A sentence with the places where the expected outputs are found; None where they are not all there."""
    if not 1 < len(expected) == len(actual) <= MOST:
        return None
    left = list(range(len(actual)))
    places = []
    for want in expected:
        place = next((place for place in left if compare([want], [actual[place]], tolerance).passed), None)
        if place is None:
            return None
        left.remove(place)
        places.append(place)
    if places == sorted(places):
        return None
    found = ", ".join(str(place) for place in places)
    return (
        f"the outputs are right in another order (the reference's are the kernel's {found}): return them in the "
        "reference's, a dict's under its keys"
    )
