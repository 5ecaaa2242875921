"""The referee's access to the device on which it times kernels."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import torch

from sandbox.protocol import cuda_driver

HOST_CACHE = "not controlled"
FLUSH_FACTOR = 2
CACHED_SHARE = 40
"""Divisor of a GPU's memory: each pool child caches at most that part between jobs. To free 1.5 GiB and allocate it
again takes 15 ms of the next job (docs/measurements.md). Four pool children cache a tenth."""

CLEARED_BYTES_PER_S = 320 << 30
"""Rate at which the driver has surely cleared freed memory, in bytes per s. On an H200 its copy engine took 19 ms for
8 GiB and 51 ms for 24, and copies of others took 11 % longer meanwhile (docs/measurements.md)."""
FREED_MUCH = 1 << 28
"""Bytes of freed memory from which on windows wait: what is less is cleared before their inputs are written."""

ROOM_SHARE, CROWDED_SHARE = 5 / 8, 3 / 8
"""Share of the device's memory that is free when runners may end later: all of it less a quarter, and less the eighth
for pooled contexts (tasks.runtime.worker_context)."""


def cleared_at(before: float, freed: Iterable[tuple[float, int]], most: int) -> float:
    """When memory is cleared that was freed at those times, one piece after the other; `before` for what was earlier.

    A piece counts as `most` bytes at most.
    """
    end = before
    for at, size in sorted(freed):
        if size >= FREED_MUCH:
            end = max(end, at) + min(size, most) / CLEARED_BYTES_PER_S
    return end


class Device:
    """A device by its torch name ("cpu", "cuda:0"): waiting for it, and emptying its cache."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cuda = name.startswith("cuda")
        self._flush_buffer: torch.Tensor | None = None
        self._cleared_at = 0.0
        if self.is_cuda:
            torch.empty((), device=name)  # Makes the context that driver calls for arenas need.

    @property
    def cache(self) -> str:
        """The state of the caches at a call, in words."""
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
        """Copies bytes; on a GPU with a kernel, because during a copy engine's copy other contexts' kernels could run.

        Both tensors are contiguous, and begin and end on a multiple of 8 bytes.
        """
        if self.is_cuda:
            torch.bitwise_or(source.view(torch.int64), 0, out=target.view(torch.int64))
        else:
            target.copy_(source)

    def wait_until_cleared(self, freed: Iterable[tuple[float, int]]) -> None:
        """Waits until the driver has cleared so many bytes, freed then (time.monotonic): that slows windows by a
        tenth."""
        if self.is_cuda:
            self._cleared_at = cleared_at(self._cleared_at, freed, self.memory)
            time.sleep(max(self._cleared_at - time.monotonic(), 0.0))

    def flush_cache(self) -> None:
        """Overwrites more memory than the L2 holds, so that a window starts cold. It does nothing on the host."""
        if not self.is_cuda:
            return
        if self._flush_buffer is None:
            size = torch.cuda.get_device_properties(self.name).L2_cache_size * FLUSH_FACTOR
            self._flush_buffer = torch.empty(size, dtype=torch.uint8, device=self.name)
        self._flush_buffer.zero_()

    @property
    def uuid(self) -> str | None:
        """The driver's UUID of the GPU; None for the host."""
        return f"GPU-{torch.cuda.get_device_properties(self.name).uuid}" if self.is_cuda else None

    @property
    def memory(self) -> int:
        """The device's memory in bytes; for the host, what is free now."""
        if self.is_cuda:
            return int(torch.cuda.get_device_properties(self.name).total_memory)
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    @property
    def free(self) -> int:
        """The device's free memory in bytes."""
        return int(torch.cuda.mem_get_info(self.name)[0]) if self.is_cuda else self.memory

    @property
    def left_by_others(self) -> int:
        """The device's memory in bytes that other processes leave: what is free, or lies in this process's tensors and
        cache."""
        return self.free + (torch.cuda.memory_reserved(self.name) if self.is_cuda else 0)

    @property
    def reaches_host_memory(self) -> bool:
        """Whether kernels on the device can write all memory of their process, its interpreter's too."""
        return self.is_cuda and cuda_driver.reaches_host_memory(torch.device(self.name).index or 0)

    @property
    def has_room(self) -> bool:
        """Whether enough memory is free that runners may end later without anyone lacking what they hold.

        It is False on the host: even ending processes take time on its few cores.
        """
        return self.is_cuda and self.free > ROOM_SHARE * self.memory

    @property
    def is_crowded(self) -> bool:
        """Whether so little memory is free that a context which waits for a job may lack a job that runs."""
        return self.is_cuda and self.free < CROWDED_SHARE * self.memory

    @property
    def usable(self) -> bool:
        """Whether this process can still use the device: an error in one of its kernels makes it unusable for good."""
        try:
            self.synchronize()
        except RuntimeError:
            return False
        return True

    @property
    def takes_much(self) -> bool:
        """Whether this process's tensors take more than CACHED_SHARE; always True on the host, where it is unknown."""
        return not self.is_cuda or torch.cuda.memory_allocated(self.name) > self.memory // CACHED_SHARE

    def empty_cache(self) -> None:
        """Frees all memory that this process has cached on the device."""
        if self.is_cuda:
            torch.cuda.empty_cache()

    def release_memory(self) -> None:
        """Frees cached memory above CACHED_SHARE, on a crowded device all of it, for the next kernel."""
        if self.is_cuda and (self.is_crowded or torch.cuda.memory_reserved(self.name) > self.memory // CACHED_SHARE):
            torch.cuda.empty_cache()
