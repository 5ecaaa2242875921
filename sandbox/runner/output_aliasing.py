"""A kernel's first answers, and where they lie: some answer in the same memory in every call, or in a few in turn."""

from __future__ import annotations

from typing import Any

import torch

from sandbox.protocol.arena import describe

SAMPLE = 15_013
"""Of an answer so many elements are looked at, or up to twice as many: few enough for one thread, as those of several
runners would wait for each other. A prime: as many rows as are a power of two would be looked at in one column."""
COPIED = 1 << 16
"""Of so many elements all are brought to the host, which loads nothing on the device, however they lie."""
DIFFERENT, ALLOWED, NOTHING = 0.1, 0.1, 1e-3
"""Another answer differs in a tenth of them, by a tenth of its size and more than next to nothing: what rounds or
orders its sums otherwise from call to call does not."""


class AnswerMemory:
    """Where answers lie; all of them are held, so that memory which comes again does so by the kernel's will."""

    def __init__(self, arena: torch.Tensor) -> None:
        self.comes_again = False
        self._lies_alone = True
        self._first: list[torch.Tensor] | None = None
        self._arena = _place(arena)
        self._places: list[tuple[int, int]] = []
        # A number's tensor is made here and nobody else's: let go, its memory would come again for the next one.
        self._held: list[torch.Tensor] = []

    def note(self, answer: list[torch.Tensor]) -> None:
        """One more call's answer, right after it: of a CUDA graph's there is nothing left to ask after the next call.

        What lies in the arena is an argument, and no place that a call could answer in again.
        """
        found = [_place(tensor) for tensor in answer if tensor.layout == torch.strided]
        own = [place for place in found if not _overlap(place, self._arena)]
        self.comes_again |= any(_overlap(place, earlier) for place in own for earlier in self._places)
        self._first = self._first or answer
        self._lies_alone &= len(own) == len(answer)
        self._places += own
        self._held += answer

    def told(self, last: list[torch.Tensor]) -> dict[str, Any]:
        """What is said of all calls, of which that is the last answer."""
        return {"reuses_memory": self.comes_again, "first_differs": self._first_differs(last)}

    def _first_differs(self, last: list[torch.Tensor]) -> bool | None:
        """Whether the first answer was another; None where it may have been written over, or is no such answer."""
        first = self._first or []
        if self.comes_again or not self._lies_alone or [one.shape for one in first] != [one.shape for one in last]:
            return None
        return any(_differ(*pair) for pair in zip(first, last, strict=True))


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end."""
    return tensor.data_ptr(), tensor.data_ptr() + describe(tensor).span


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two answers to the same inputs are others; False of what is not floating, which rounding may change."""
    if not one.is_floating_point() or one.dtype != other.dtype or one.element_size() < 2 or one.numel() == 0:
        return False
    if one.numel() > COPIED and not (one.is_contiguous() and other.is_contiguous()):
        return False  # Its elements in a row would be a copy of it all.
    ours, theirs = _sample(one), _sample(other)
    size = theirs.abs().nan_to_num(0.0, 0.0, 0.0)
    allowed = ALLOWED * torch.maximum(size, size.square().mean().sqrt()) + NOTHING
    alike = (ours == theirs) | (ours.isnan() & theirs.isnan()) | ((ours - theirs).abs() <= allowed)
    return float(alike.to(torch.float64).mean()) < 1 - DIFFERENT


def _sample(answer: torch.Tensor) -> torch.Tensor:
    """On the host: for what is asked of it a device loads a dozen kernels, which takes 0.2 s (docs/measurements.md)."""
    row = (answer.detach().cpu() if answer.numel() <= COPIED else answer.detach()).reshape(-1)
    every = max(1, row.numel() // SAMPLE) | 1  # Odd: no row's length is a multiple of it by chance.
    return row[::every].cpu().to(torch.float64)
