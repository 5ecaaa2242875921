"""CUDA driver calls that torch does not offer: memory shared by descriptor, and the gate of a window.

The module imports `cuda.bindings` on first use, so that it loads without a GPU library.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

from sandbox.protocol.sealed_memory import sealed_memory

WORD = 4
ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
"""Driver settings for a context with one hardware queue for all streams; the default is eight."""


class CudaError(RuntimeError):
    """A driver call failed; the message names the call and the driver's error."""


class DeviceMemoryError(CudaError):
    """The device has too little free memory for a driver call."""


def driver() -> Any:
    """The `cuda.bindings.driver` module."""
    from cuda.bindings import driver as module

    return module


def call(function: Any, *arguments: Any) -> Any:
    """Calls a driver function and returns its results; raises CudaError if it fails."""
    error, *results = function(*arguments)
    if error.value != 0:
        kind = DeviceMemoryError if error.name == "CUDA_ERROR_OUT_OF_MEMORY" else CudaError
        raise kind(f"{function.__name__} failed: {error.name}")
    return results[0] if len(results) == 1 else tuple(results)


LIMITS = ("STACK_SIZE", "PRINTF_FIFO_SIZE", "MALLOC_HEAP_SIZE", "MAX_L2_FETCH_GRANULARITY", "PERSISTING_L2_CACHE_SIZE")


def context_limits() -> list[tuple[int, int]]:
    """The limits of this context, each with the driver's error code: not every device has all of them."""
    cu = driver()
    values = [cu.cuCtxGetLimit(getattr(cu.CUlimit, f"CU_LIMIT_{name}")) for name in LIMITS]
    return [(int(error), int(value or 0)) for error, value in values]


def reaches_host_memory(device: int) -> bool:
    """Whether kernels on that device can access all memory of their process: the driver's HMM, or a coherent link."""
    cu = driver()
    attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
    return bool(call(cu.cuDeviceGetAttribute, attribute, call(cu.cuDeviceGet, device)))


def independent_stream() -> int:
    """A stream of this context that waits for no other stream, unlike most streams, which wait for the default one.

    It has the highest priority: streams of normal priority may share a hardware queue with streams that wait.
    """
    cu = driver()
    _, highest = call(cu.cuCtxGetStreamPriorityRange)
    return int(call(cu.cuStreamCreateWithPriority, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), highest))


class SharedMemory:
    """Device memory that another process can map through a file descriptor (CUDA virtual memory management)."""

    def __init__(self, size: int, device: int, descriptor: int | None = None) -> None:
        cu = driver()
        handle_type = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        location = cu.CUmemLocation()
        location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = device
        properties = cu.CUmemAllocationProp()
        properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = location
        properties.requestedHandleTypes = handle_type
        granularity = call(
            cu.cuMemGetAllocationGranularity,
            properties,
            cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        )
        self.size = max(-(-size // granularity), 1) * granularity
        if descriptor is None:
            self._handle = call(cu.cuMemCreate, self.size, properties, 0)
            descriptor = int(call(cu.cuMemExportToShareableHandle, self._handle, handle_type, 0))
        else:
            self._handle = call(cu.cuMemImportFromShareableHandle, descriptor, handle_type)
        self.descriptor = descriptor
        pointer = call(cu.cuMemAddressReserve, self.size, 0, 0, 0)
        call(cu.cuMemMap, pointer, self.size, 0, self._handle, 0)
        access = cu.CUmemAccessDesc()
        access.location = location
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call(cu.cuMemSetAccess, pointer, self.size, [access], 1)
        self._pointer = pointer
        self.address = int(pointer)

    def close(self) -> None:
        """Waits for the context's work on the memory first: the driver would unmap memory in use."""
        cu = driver()
        call(cu.cuCtxSynchronize)
        call(cu.cuMemUnmap, self._pointer, self.size)
        call(cu.cuMemAddressFree, self._pointer, self.size)
        call(cu.cuMemRelease, self._handle)
        os.close(self.descriptor)


class Gate:
    """Two words in shared host memory: the gate on which a runner's stream waits, and its report of the end.

    The referee releases the gate by writing a sequence number to the first word. The runner's stream writes the number
    to the second word behind its last call. The referee's stream may wait for that, but never trusts it.

    A process that has queued work on the words must call `withdraw`, or keep the gate for good.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = sealed_memory("gate", mmap.PAGESIZE)
        self.descriptor = descriptor
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._words = memoryview(self._page)[: 2 * WORD].cast("I")
        self._host_address = 0
        self._device_address: int | None = None

    def close(self) -> None:
        """Closes the descriptor once the other process has it; the words stay mapped."""
        os.close(self.descriptor)

    def reach(self) -> None:
        """Maps the words into this context now, instead of when the first operation on them is queued."""
        self._address()

    def withdraw(self) -> None:
        """Unmaps the words from this context; no queued work may use them any more."""
        if self._device_address is not None:
            call(driver().cuMemHostUnregister, self._host_address)
            self._device_address = None

    def release(self, value: int) -> None:
        """Releases every stream that waits for `value` or less. Called by the referee."""
        self._words[0] = value

    def queue_release(self, stream: int, value: int) -> None:
        """Queues `release` on that stream. Called by the referee."""
        self._queue_write(stream, 0, value)

    def queue_wait_for_done(self, stream: int, value: int) -> None:
        """Queues on that stream a wait for the runner's `value`. The referee calls it and bounds the wait."""
        self._queue_wait(stream, WORD, value)

    def force_release(self, stream: int, value: int) -> None:
        """Ends every wait for the runner's `value`, from a stream that waits for nothing. Called by the referee.

        The device writes the word, into the page that its waits read: the runner may have replaced the host's page
        (MADV_REMOVE). The runner must be dead by now, or it could undo the write.
        """
        self._words[1] = value
        self._queue_write(stream, WORD, value)

    @property
    def last_done(self) -> int:
        """The sequence number that the runner's stream has signalled last."""
        return self._words[1]

    def wait_on_gate(self, stream: int, value: int) -> None:
        """Queues on that stream a wait until the gate's word reaches `value`. Called by the runner."""
        self._queue_wait(stream, 0, value)

    def signal_done(self, stream: int, value: int) -> None:
        """Queues on that stream the signal that it has come to `value`. Called by the runner."""
        self._queue_write(stream, WORD, value)

    def _queue_wait(self, stream: int, offset: int, value: int) -> None:
        cu = driver()
        reached = cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        call(cu.cuStreamWaitValue32, stream, self._address() + offset, value, reached)

    def _queue_write(self, stream: int, offset: int, value: int) -> None:
        cu = driver()
        default = cu.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
        call(cu.cuStreamWriteValue32, stream, self._address() + offset, value, default)

    def _address(self) -> int:
        """The device's address of the words."""
        if self._device_address is None:
            cu = driver()
            self._host_address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
            flags = cu.CU_MEMHOSTREGISTER_PORTABLE | cu.CU_MEMHOSTREGISTER_DEVICEMAP
            call(cu.cuMemHostRegister, self._host_address, mmap.PAGESIZE, flags)
            self._device_address = int(call(cu.cuMemHostGetDevicePointer, self._host_address, 0))
        return self._device_address
