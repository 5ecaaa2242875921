"""Where a kernel's answers lie: some kernels answer in the same memory in every call, or in a few in turn."""

from __future__ import annotations

import torch

from sandbox.arena import describe


class AnswerMemory:
    """Where answers lie; all of them are held, so that memory which comes again does so by the kernel's will."""

    def __init__(self, arena: torch.Tensor) -> None:
        self.comes_again = False
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
        self._places += own
        self._held += answer


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end."""
    return tensor.data_ptr(), tensor.data_ptr() + describe(tensor).span


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
