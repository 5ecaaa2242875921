"""Finds the outputs of a call that lie in the memory of its arguments.

A kernel may return a view of an argument, or change an argument in place.
"""

from __future__ import annotations

from typing import Any

import torch

from domain import value as values
from sandbox.protocol.arena import describe


def argument_views(outputs: list[torch.Tensor], args: list[Any]) -> list[list[int] | None]:
    """For each output: index of the argument tensor that contains it (depth first), byte offset in it, and strides.

    None for an output with memory of its own. A lazily conjugated tensor (`conj`) counts as a view too.
    """
    leaves = values.leaves(args, torch.Tensor)
    return [_view(output, leaves) for output in outputs]


def detached_outputs(
    outputs: list[torch.Tensor], args: list[Any], reported_views: list[list[int] | None]
) -> list[torch.Tensor]:
    """The outputs, with copies of unexpected views of arguments, for copying after the arguments are overwritten.

    The referee reads the views that it knows (`reported_views`) itself. A kernel may return other views now and then.
    """
    return [
        output if view is None or reported_views[position : position + 1] == [view] else output.clone()
        for position, (output, view) in enumerate(zip(outputs, argument_views(outputs, args), strict=True))
    ]


def _view(output: torch.Tensor, leaves: list[torch.Tensor]) -> list[int] | None:
    if output.layout != torch.strided or not output.numel():
        return None
    for number, leaf in enumerate(leaves):
        offset = output.data_ptr() - leaf.data_ptr()
        if 0 <= offset < describe(leaf).span:
            return [number, offset, *output.stride()]
    return None
