"""Where the calls of a window lie in the arena, as a runner is told: one call, and how far the others are from it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from domain import value as values
from domain.value import TensorRef
from sandbox.arena import argument
from sandbox.channel import Message

Call = tuple[list[Any], list[torch.Tensor]]
"""A call's arguments, and the slots that its answers are handed in at."""


def laid_out(message: Message, memory: torch.Tensor) -> list[Call]:
    """The calls of `profiling.slots.Slots.wire`, their tensors in that memory."""
    inputs_end, strides = int(message["inputs_end"]), (int(message["input_stride"]), int(message["output_stride"]))
    calls: list[Call] = []
    for group in message["groups"]:
        first = values.decode([group["args"], group["outputs"]])
        for number in range(int(group["count"])):
            steps = [number * stride for stride in strides]
            args, slots = values.replace(first, TensorRef, partial(_moved, memory, inputs_end, steps))
            calls.append((args, slots))
    return calls


def _moved(memory: torch.Tensor, inputs_end: int, steps: list[int], ref: TensorRef) -> Any:
    """The tensor that lies as far from that one as its call does: inputs by one step, outputs by another."""
    return argument(memory, ref.at(ref.offset + steps[ref.offset >= inputs_end]))
