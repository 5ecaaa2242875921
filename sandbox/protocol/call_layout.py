"""Decodes where a window's calls lie in the arena: the first call's arguments, and the distance to each next call's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from domain import value as values
from domain.value import TensorRef
from sandbox.protocol.arena import arguments, view
from sandbox.protocol.channel import Message

Call = tuple[list[Any], list[torch.Tensor]]
"""A call's arguments, and the slots for its outputs."""


def decode_calls(message: Message, memory: torch.Tensor, order: Sequence[int] = ()) -> list[Call]:
    """The calls of `profiling.window.call_buffers.Slots.wire`, with their tensors in that memory.

    `order` gives for each output the number of its slot. It is applied here, off the clock.
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
