"""What the calls of several windows are given, drawn before the first of them is taken."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profiling.slots import Slots
from tasks.rounds import Rounds


@dataclass(frozen=True)
class Contents:
    """What a layout is filled with; no image where that is as it lies there."""

    image: torch.Tensor | None
    seed: int

    def put(self, layout: Slots) -> None:
        layout.seed = self.seed
        if self.image is not None:
            layout.image.copy_(self.image)


def fresh_contents(rounds: Rounds, slots: dict[str, Slots], *, copied: bool) -> dict[str, Contents]:
    """Fresh inputs for each contender by role; copied where the layout is filled again before they are used."""
    rounds.fill(slots)
    return {role: Contents(layout.image.clone() if copied else None, layout.seed) for role, layout in slots.items()}
