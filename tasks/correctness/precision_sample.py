"""One call of a job's windows, drawn so that nobody knows beforehand which: its answers are looked at in float64."""

from __future__ import annotations

import secrets

import torch

from domain.value import replace
from profiling.window.call_buffers import Slots
from tasks.correctness.input_batches import Arguments


class SampledCall:
    """Of the longest windows any is as likely; the first of all, which nothing is timed by, only if it is the only one.

    Whoever computes more precisely in windows that he knows would else be looked at in those.
    """

    def __init__(self) -> None:
        self.arguments: Arguments = []
        self.expected: list[torch.Tensor] = []
        self.actual: list[torch.Tensor] = []
        self._longest = 0
        self._offered = 0

    def offer(self, slots: Slots, expected: list[torch.Tensor], actual: list[torch.Tensor]) -> None:
        """One more window: what the reference was given, and what both have answered, [calls, *shape] each."""
        if slots.calls < self._longest:
            return
        self._longest = slots.calls if self._offered else 0
        self._offered += 1
        # Reservoir sampling, as nobody knows how many windows there will be.
        if secrets.randbelow(max(self._offered - 1, 1)) == 0:
            call = secrets.randbelow(slots.calls)
            self.arguments = replace(slots.arguments(call), torch.Tensor, torch.clone)
            self.expected, self.actual = ([stack[call].clone() for stack in stacks] for stacks in (expected, actual))
