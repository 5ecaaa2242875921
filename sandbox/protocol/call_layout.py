"""Where the calls of a window lie in the arena, as a runner is told: one call, and how far the others are from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from domain import value as values
from domain.value import TensorRef
from sandbox.protocol.arena import arguments, view
from sandbox.protocol.channel import Message

Call = tuple[list[Any], list[torch.Tensor]]
"""A call's arguments, and the slots that its answers are handed in at."""


def laid_out(message: Message, memory: torch.Tensor, order: Sequence[int] = ()) -> list[Call]:
    """The calls of `profiling.window.call_buffers.Slots.wire`, their tensors in that memory.

    With an `order`, of each output the number of its slot: off the clock, where to permute answers would be on it.
    """
    inputs_end, strides = int(message["inputs_end"]), (int(message["input_stride"]), int(message["output_stride"]))

    def stride(ref: TensorRef) -> int:
        return strides[ref.offset >= inputs_end]

    calls: list[Call] = []
    for group in message["groups"]:
        count, args = int(group["count"]), values.decode(group["args"])
        tensors = [arguments(memory, ref, count, stride(ref)) for ref in values.leaves(args, TensorRef)]
        outputs = values.leaves(values.decode(group["outputs"]), TensorRef)
        if outputs and order:
            outputs = [outputs[number] for number in order]
        slots = [view(memory, ref.times(count, stride(ref))).unbind() for ref in outputs]
        for number in range(count):
            own = values.filled(args, TensorRef, [each[number] for each in tensors])
            calls.append((own, [each[number] for each in slots]))
    return calls
