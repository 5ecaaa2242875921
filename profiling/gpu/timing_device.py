"""The referee's own end of the device that kernels are timed on."""

from __future__ import annotations

import os

import torch

HOST_CACHE = "not controlled"
FLUSH_FACTOR = 2
KEPT_SHARE = 40
"""Of a GPU's memory, what each pool child keeps between jobs at most: to give 1.5 GiB back and to ask the driver for it
again takes 15 ms of the next job (docs/measurements.md). Four of them keep a tenth."""

ROOM_SHARE = 5 / 8
"""A quarter less than all, and the eighth that contexts may take which wait for jobs (tasks.runtime.worker_context)."""


class Device:
    """A device by its torch name ("cpu", "cuda:0"): waiting for it, and emptying its cache."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cuda = name.startswith("cuda")
        self._flush_buffer: torch.Tensor | None = None
        if self.is_cuda:
            torch.empty((), device=name)  # makes the context that the driver calls for arenas need

    @property
    def cache(self) -> str:
        """What a call finds in the cache, in words."""
        if not self.is_cuda:
            return HOST_CACHE
        return (
            "L2 flushed before each window; every call has inputs and outputs of its own; weights stay warm in a window"
        )

    def synchronize(self) -> None:
        """Waits until the referee's own work on the device is done."""
        if self.is_cuda:
            torch.cuda.synchronize(self.name)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copies bytes; on a GPU by a kernel, as a copy engine would leave the card free for other contexts' kernels.

        Both are contiguous and begin and end on a multiple of 8 bytes.
        """
        if self.is_cuda:
            torch.bitwise_or(source.view(torch.int64), 0, out=target.view(torch.int64))
        else:
            target.copy_(source)

    def flush_cache(self) -> None:
        """Overwrites more memory than the L2 holds, so that a window starts cold. Nothing on the host."""
        if not self.is_cuda:
            return
        if self._flush_buffer is None:
            size = torch.cuda.get_device_properties(self.name).L2_cache_size * FLUSH_FACTOR
            self._flush_buffer = torch.empty(size, dtype=torch.uint8, device=self.name)
        self._flush_buffer.zero_()

    @property
    def uuid(self) -> str | None:
        """The GPU's UUID as the driver has it; None for the host."""
        return f"GPU-{torch.cuda.get_device_properties(self.name).uuid}" if self.is_cuda else None

    @property
    def memory(self) -> int:
        """Bytes that the device has in all; of the host, what is free now."""
        if self.is_cuda:
            return int(torch.cuda.get_device_properties(self.name).total_memory)
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    @property
    def free(self) -> int:
        """Bytes of a GPU that no process has; of the host, what is free now."""
        return int(torch.cuda.mem_get_info(self.name)[0]) if self.is_cuda else self.memory

    @property
    def has_room(self) -> bool:
        """Whether so much of the device's memory is free that nobody will miss what runners hold that are ending.

        Never of the host, on whose few cores even what ends is in the way.
        """
        return self.is_cuda and self.free > ROOM_SHARE * self.memory

    @property
    def usable(self) -> bool:
        """Whether this process can still use the device: an error in one of its own kernels is for good."""
        try:
            self.synchronize()
        except RuntimeError:
            return False
        return True

    @property
    def takes_much(self) -> bool:
        """Whether this process's tensors take more than is kept between jobs. Of the host nobody knows: they may."""
        return not self.is_cuda or torch.cuda.memory_allocated(self.name) > self.memory // KEPT_SHARE

    def release_memory(self) -> None:
        """Gives cached memory back, but for a little, so that the next kernel finds the device nearly empty."""
        if self.is_cuda and torch.cuda.memory_reserved(self.name) > self.memory // KEPT_SHARE:
            torch.cuda.empty_cache()
