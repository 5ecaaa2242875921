"""The calls of one window: each made, marked where that is asked for, its answer handed in or kept for that."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from backends.base import Target
from sandbox.protocol.call_layout import Call
from sandbox.protocol.outputs import deliver
from sandbox.runner.timestamps import mark

Pair = tuple[Any, Any]
"""The marks before and behind a call (`sandbox.runner.timestamps`)."""

Outputs = Callable[[Any, list[Any]], list[torch.Tensor]]


class Made:
    """The calls of a window: the marks of each, none where not asked for, and the answers still to be handed in."""

    def __init__(self, marks: list[Pair], kept: list[tuple[Any, Call]], outputs: Outputs) -> None:
        self.marks = marks
        self._kept = kept
        self._outputs = outputs
        self._answers: list[list[torch.Tensor]] | None = None

    def look_for_answers(self) -> None:
        """Finds the tensors of each answer; to make one of a number waits for the device, which may be held later."""
        if self._answers is None:
            asked = any(slots for _, (_, slots) in self._kept)
            self._answers = [self._outputs(result, args) for result, (args, _) in self._kept] if asked else []

    def hand_in(self) -> None:
        """Copies the answers into their slots, all together, and lets go of them."""
        self.look_for_answers()
        kept, answers = self._kept, self._answers
        self._kept, self._answers = [], []
        if answers:
            deliver(answers, [slots for _, (_, slots) in kept])


def call_all(
    calls: Iterable[Call],
    call: Callable[[list[Any]], Any],
    outputs: Outputs,
    target: Target,
    *,
    at_once: bool,
    marked: bool,
) -> Made:
    """Makes the calls in turn.

    Answers are handed in together behind the last call, or each before the next (`at_once`) where calls answer in the
    same memory, and on the host: kept, they would cost each call fresh pages, of which a program that drops its answers
    pays none. On the host the marks are around the call alone. On a device one stands between two calls, as each costs.
    """
    is_cuda = target.is_cuda
    marks = [mark(target)] if marked else []
    kept: list[tuple[Any, Call]] = []
    for args, slots in calls:
        result = call(args)
        if marked and not is_cuda:
            marks.append(mark(target))
        if at_once and slots:
            deliver([outputs(result, args)], [slots])
        else:
            kept.append((result, (args, slots)))
        if marked:
            marks.append(mark(target))
    return Made(list(itertools.pairwise(marks))[:: 1 if is_cuda else 2], kept, outputs)
