"""Samples one secret call of a job's windows, whose outputs the referee then compares with a float64 run."""

from __future__ import annotations

import secrets

import torch

from domain.value import replace
from profiling.window.call_buffers import Slots
from tasks.correctness.input_batches import Arguments


class PrecisionSample:
    """A call from one of the longest windows, each with the same probability.

    The first window is not timed, so it is sampled only if it is the only one. A kernel could compute more precisely in
    windows that it recognises.
    """

    def __init__(self) -> None:
        self.arguments: Arguments = []
        self.expected: list[torch.Tensor] = []
        self.actual: list[torch.Tensor] = []
        self._longest = 0
        self._considered = 0

    def consider(self, slots: Slots, expected: list[torch.Tensor], actual: list[torch.Tensor]) -> None:
        """Consider a window: the reference's slots, and the outputs of both kernels, [calls, *shape] each."""
        if slots.calls < self._longest:
            return
        self._longest = slots.calls if self._considered else 0
        self._considered += 1
        # Reservoir sampling, because the number of windows is not known in advance.
        if secrets.randbelow(max(self._considered - 1, 1)) == 0:
            call = secrets.randbelow(slots.calls)
            self.arguments = replace(slots.arguments(call), torch.Tensor, torch.clone)
            self.expected, self.actual = ([stack[call].clone() for stack in stacks] for stacks in (expected, actual))
