"""What the referee does with a window's memory: inputs in, inputs away, outputs to where nobody else can write."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profiling.gpu.timing_device import Device
from profiling.window.call_buffers import Slots
from sandbox.protocol.arena import Arena


@dataclass(frozen=True)
class Overwritten:
    """The inputs' memory as it was when the calls of a window held back were over, and what was written there then."""

    before: torch.Tensor
    after: torch.Tensor


@dataclass(frozen=True)
class Taking:
    """One window while it is taken: over which calls, in which memory, and whether its answers are held back.

    Nothing here waits for the device: on a GPU all of it is queued on the referee's stream.
    """

    device: Device
    slots: Slots
    arena: Arena
    snapshot: torch.Tensor
    held_back: bool
    overwritten: Overwritten | None

    def make_ready(self) -> None:
        """Copies fresh inputs and poisoned outputs in, and empties the cache."""
        self.device.copy(self.slots.image, self.arena.bytes[: self.slots.size])
        self.device.flush_cache()

    def take_away(self) -> None:
        """Overwrites what the calls were given. On the clock: what is computed meanwhile is their time."""
        if self.overwritten is not None:
            self.overwritten.before.copy_(self.arena.bytes[: self.slots.inputs_end])
        self.slots.wipe(self.arena.bytes, self.overwritten.after if self.overwritten is not None else None)

    def keep(self) -> None:
        """Copies every output to private memory."""
        self.snapshot.copy_(self.arena.bytes[self.slots.inputs_end : self.slots.size])
