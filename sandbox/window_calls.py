"""The calls of one window: each made, marked where that is asked for, its answer handed in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from backends.backend import Target
from sandbox.answers import deliver
from sandbox.layout import Call
from sandbox.marks import mark

Pair = tuple[Any, Any]
"""The marks before and behind a call (`sandbox.marks`)."""


def call_all(
    calls: Iterable[Call],
    call: Callable[[list[Any]], Any],
    outputs: Callable[[Any, list[Any]], list[torch.Tensor]],
    target: Target,
    *,
    reuses_memory: bool,
    marked: bool,
) -> list[Pair]:
    """Makes the calls in turn and hands in what each answers; the marks of each call, none where not `marked`.

    Answers are handed in together behind the last call, or each before the next where calls answer in the same memory,
    and on the host: kept, they would cost each call fresh pages, of which a program that drops its answers pays none.
    On the host the marks are around the call alone. On a device one stands between two calls, as each costs.
    """
    is_cuda = target.is_cuda
    marks = [mark(target)] if marked else []
    kept = []
    for args, slots in calls:
        result = call(args)
        if marked and not is_cuda:
            marks.append(mark(target))
        if (reuses_memory or not is_cuda) and slots:
            deliver([outputs(result, args)], [slots])
        else:
            kept.append((result, args, slots))
        if marked:
            marks.append(mark(target))
    if any(slots for _, _, slots in kept):
        deliver([outputs(result, args) for result, args, _ in kept], [slots for _, _, slots in kept])
    return list(itertools.pairwise(marks))[:: 1 if is_cuda else 2]
