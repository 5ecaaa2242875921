"""A kernel's first answers, and where they lie: some answer in the same memory in every call, or in a few in turn."""

from __future__ import annotations

from typing import Any

import torch

from sandbox.arena import describe

SAMPLE, DIFFERENT, ALLOWED = 1 << 16, 0.01, 0.01
"""Of an answer so many elements are looked at; another answer differs in a hundredth of them, by a hundredth of its
size: what rounds otherwise from call to call does not."""


class AnswerMemory:
    """Where answers lie; all of them are held, so that memory which comes again does so by the kernel's will."""

    def __init__(self, arena: torch.Tensor) -> None:
        self.comes_again = False
        self._lies_alone = True
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
        self._lies_alone &= len(own) == len(answer)
        self._places += own
        self._held += answer

    def told(self, last: list[torch.Tensor]) -> dict[str, Any]:
        """What is said of all calls, of which that is the last answer.

        Whether the first one was another is known of answers that lie by themselves alone.
        """
        first = zip(self._held, last, strict=False) if self._lies_alone and not self.comes_again else ()
        return {"reuses_memory": self.comes_again, "first_differs": any(_differ(*pair) for pair in first)}


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end."""
    return tensor.data_ptr(), tensor.data_ptr() + describe(tensor).span


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the second is another answer to the same inputs than the first, to which it need not be alike in form."""
    if (one.shape, one.dtype) != (other.shape, other.dtype) or one.numel() == 0:
        return one.shape != other.shape
    if one.numel() > SAMPLE and not (one.is_contiguous() and other.is_contiguous()):
        return False  # Its elements in a row would be a copy of it all.
    wide = torch.complex128 if one.is_complex() else torch.float64
    every = max(1, one.numel() // SAMPLE) | 1  # Odd: no row's length is a multiple of it by chance.
    ours, theirs = (each.detach().reshape(-1)[::every].to(wide) for each in (one, other))
    size = theirs.abs().nan_to_num(0.0, 0.0, 0.0)
    allowed = ALLOWED * torch.maximum(size, size.square().mean().sqrt())
    alike = (ours == theirs) | (ours.isnan() & theirs.isnan()) | ((ours - theirs).abs() <= allowed)
    return float(alike.to(torch.float64).mean()) < 1 - DIFFERENT
