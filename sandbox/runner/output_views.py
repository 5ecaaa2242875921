"""Which of a call's answers lie in its arguments' memory: a kernel may answer with a view, or change one in place."""

from __future__ import annotations

from typing import Any

import torch

from domain import value as values
from sandbox.protocol.arena import describe


def argument_views(outputs: list[torch.Tensor], args: list[Any]) -> list[list[int] | None]:
    """For each output the number of the argument tensor that it lies in, depth first, its byte there, its strides.

    None for one with memory of its own. One that means something else than its bytes say (`conj`) lies there too.
    """
    leaves = values.leaves(args, torch.Tensor)
    return [_view(output, leaves) for output in outputs]


def kept(outputs: list[torch.Tensor], args: list[Any], told: list[list[int] | None]) -> list[torch.Tensor]:
    """The same, to be handed in when arguments are overwritten; the referee knows what lay where it was told.

    Of what lies elsewhere in arguments copies: a kernel may answer with a view of one now and then.
    """
    return [
        output if view is None or told[place : place + 1] == [view] else output.clone()
        for place, (output, view) in enumerate(zip(outputs, argument_views(outputs, args), strict=True))
    ]


def _view(output: torch.Tensor, leaves: list[torch.Tensor]) -> list[int] | None:
    if output.layout != torch.strided or not output.numel():
        return None
    for number, leaf in enumerate(leaves):
        offset = output.data_ptr() - leaf.data_ptr()
        if 0 <= offset < describe(leaf).span:
            return [number, offset, *output.stride()]
    return None
