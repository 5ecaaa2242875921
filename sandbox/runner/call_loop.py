"""Makes the calls of one window, records timestamps between them if requested, and copies their outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from backends.base import Target
from sandbox.protocol.call_layout import Call
from sandbox.protocol.outputs import deliver
from sandbox.runner.timestamps import record_event

Pair = tuple[Any, Any]
"""Timestamps before and behind a call."""

Outputs = Callable[[Any, list[Any]], list[torch.Tensor]]


class WindowCalls:
    """The calls of a window: the timestamps of each, if requested, and the outputs that are still to be copied."""

    def __init__(self, events: list[Pair], pending: list[tuple[Any, Call]], outputs: Outputs) -> None:
        self.events = events
        self._pending = pending
        self._outputs = outputs
        self._outputs_by_call: list[list[torch.Tensor]] | None = None

    def collect_outputs(self) -> None:
        """Finds the output tensors now: making one of a number waits for the device, which may block later."""
        if self._outputs_by_call is None:
            any_slots = any(slots for _, (_, slots) in self._pending)
            self._outputs_by_call = (
                [self._outputs(result, args) for result, (args, _) in self._pending] if any_slots else []
            )

    def copy_outputs(self) -> None:
        """Copies the outputs into their slots in one batch, and drops them."""
        self.collect_outputs()
        pending, outputs_by_call = self._pending, self._outputs_by_call
        self._pending, self._outputs_by_call = [], []
        if outputs_by_call:
            deliver(outputs_by_call, [slots for _, (_, slots) in pending])


def call_all(
    calls: Iterable[Call],
    call: Callable[[list[Any]], Any],
    outputs: Outputs,
    target: Target,
    *,
    immediate: bool,
    with_events: bool,
) -> WindowCalls:
    """Makes the calls in order.

    Outputs are copied together behind the last call. They are copied before the next call (`immediate`) if calls reuse
    output memory, and on the host: there, kept outputs would cost each call fresh pages, unlike in a program that drops
    them. Timestamps enclose the call alone on the host. On a device, one timestamp separates two calls, because each
    costs time.
    """
    is_cuda = target.is_cuda
    events = [record_event(target)] if with_events else []
    pending: list[tuple[Any, Call]] = []
    for args, slots in calls:
        result = call(args)
        if with_events and not is_cuda:
            events.append(record_event(target))
        if immediate and slots:
            deliver([outputs(result, args)], [slots])
        else:
            pending.append((result, (args, slots)))
        if with_events:
            events.append(record_event(target))
    return WindowCalls(list(itertools.pairwise(events))[:: 1 if is_cuda else 2], pending, outputs)
