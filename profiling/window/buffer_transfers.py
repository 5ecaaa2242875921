"""The referee's memory operations in one window: upload inputs, clear inputs, copy outputs to private memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profiling.gpu.timing_device import Device
from profiling.window.call_buffers import Slots
from sandbox.protocol.arena import Arena


@dataclass(frozen=True)
class Overwritten:
    """The inputs' memory after the calls of a deferred-readback window, and the random bytes that replaced it."""

    before: torch.Tensor
    after: torch.Tensor


@dataclass(frozen=True)
class BufferTransfers:
    """The transfers of one window. On a GPU they are queued on the referee's stream; none waits for the device."""

    device: Device
    slots: Slots
    arena: Arena
    snapshot: torch.Tensor
    deferred_readback: bool
    overwritten: Overwritten | None

    def upload(self) -> None:
        """Copies fresh inputs and poisoned outputs to the arena, and flushes the L2 cache."""
        write_image(self.device, self.slots, self.arena)
        self.device.flush_cache()

    def clear_inputs(self) -> None:
        """Overwrites the calls' inputs and outputs while the clock runs, so that work in the meantime is timed."""
        if self.overwritten is not None:
            self.overwritten.before.copy_(self.arena.bytes[: self.slots.inputs_end])
        self.slots.clear(self.arena.bytes, self.overwritten.after if self.overwritten is not None else None)

    def copy_outputs(self) -> None:
        """Copies every output to the referee's private memory."""
        self.snapshot.copy_(self.arena.bytes[self.slots.inputs_end : self.slots.size])


def write_image(device: Device, slots: Slots, arena: Arena) -> None:
    """Writes the contents of all calls to the arena: the image, and poison where the image has no outputs."""
    device.copy(slots.image, arena.bytes[: slots.image.numel()])
    slots.poison_outputs(arena.bytes)
