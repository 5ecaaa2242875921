"""The arena: memory that the referee owns and a runner may write, so the referee trusts nothing in it.

On a GPU it is device memory from CUDA's virtual memory API, shared by file descriptor. Legacy IPC handles do not
survive another uid or network namespace (docs/measurements.md). Without a GPU it is shared host memory.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from backends.dtypes import CODE_DTYPES
from domain.value import TensorRef
from sandbox.protocol import cuda_driver
from sandbox.protocol.sealed_memory import sealed_memory

ALIGNMENT = 512
_BYTES = dict.fromkeys(CODE_DTYPES, torch.uint8)
COPIED_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64} | _BYTES
"""Types of the same size for those that PyTorch cannot copy in every way on a GPU."""


class Arena(Protocol):
    """`bytes` is the memory as a flat uint8 tensor; `descriptor` is what another process opens it with."""

    bytes: torch.Tensor
    descriptor: int

    def close(self) -> None: ...


class HostArena:
    def __init__(self, size: int, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = sealed_memory("arena", max(size, 1))
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, max(size, 1))
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)

    def close(self) -> None:
        """Gives the descriptor back; the mapping goes when the last tensor over it does."""
        os.close(self.descriptor)


class DeviceArena:
    """GPU memory shared by file descriptor; `bytes` is a view of it in this process's context."""

    def __init__(self, size: int, device: str, descriptor: int | None = None) -> None:
        self._mapping = cuda_driver.SharedMemory(size, torch.device(device).index or 0, descriptor)
        self.descriptor = self._mapping.descriptor
        self.bytes = torch.as_tensor(self, device=device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self._mapping.size,),
            "typestr": "|u1",
            "data": (self._mapping.address, False),
            "version": 3,
            "strides": None,
        }

    def close(self) -> None:
        """Unmaps the memory; no tensor over it may be used afterwards."""
        # torch's tensor holds this object, which would hold the tensor for good: the collector sees no such cycle.
        self.bytes = torch.empty(0, dtype=torch.uint8)
        self._mapping.close()


def create(size: int, device: str) -> Arena:
    """An arena of at least `size` bytes owned by this process."""
    return DeviceArena(size, device) if device.startswith("cuda") else HostArena(size)


def attach(size: int, device: str, descriptor: int) -> Arena:
    """Another process's arena; takes the descriptor over."""
    if device.startswith("cuda"):
        return DeviceArena(size, device, descriptor)
    return HostArena(size, descriptor)


def view(memory: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """The tensor at `ref` in a flat uint8 tensor; raises ValueError if it does not fit."""
    dtype: torch.dtype = getattr(torch, ref.dtype)
    own = _own_bytes(memory, ref, dtype)
    if not own.numel():
        return torch.empty_strided(ref.shape, ref.strides, dtype=dtype, device=memory.device)
    return own.view(dtype).as_strided(ref.shape, ref.strides)


def argument(memory: torch.Tensor, ref: TensorRef, device: str | None = None) -> torch.Tensor:
    """As `view`, but a kernel cannot tell it from an ordinary tensor: it is no view, and its storage holds only itself.

    If the memory is on another device than `device`, the result is a copy with the same strides.
    """
    dtype: torch.dtype = getattr(torch, ref.dtype)
    if device is not None and memory.device != torch.device(device):
        copy = torch.empty_strided(ref.shape, ref.strides, dtype=dtype, device=device)
        write(copy, view(memory, ref))
        return copy
    (only,) = arguments(memory, ref, 1, 0)
    return only


def arguments(memory: torch.Tensor, ref: TensorRef, count: int, step: int) -> list[torch.Tensor]:
    """`argument` for `count` calls, whose tensors lie `step` bytes apart, a multiple of the element size."""
    if not ref.span:
        return [view(memory, ref) for _ in range(count)]
    dtype: torch.dtype = getattr(torch, ref.dtype)
    # DLPack gives each tensor a storage of its own bytes that keeps the memory alive. A capsule skips the negotiation
    # about devices and streams, which takes several times as long for every tensor of a window.
    with suppress(BufferError, RuntimeError):  # DLPack does not support every type.
        tensors = [from_dlpack(to_dlpack(own)) for own in view(memory, ref.times(count, step)).unbind()]
        if tensors[0].stride() == ref.strides:  # DLPack may change the strides of a tensor with one element or none.
            return tensors
    _own_bytes(memory, ref.at(ref.offset + (count - 1) * step), dtype)  # Checks that the last one fits.
    byte_ranges = memory[ref.offset :].as_strided((count, ref.span), (step, 1)).unbind()
    with torch.no_grad():
        return [_own_storage(own, dtype, ref) for own in byte_ranges]


def _own_storage(own: torch.Tensor, dtype: torch.dtype, ref: TensorRef) -> torch.Tensor:
    storage = from_dlpack(to_dlpack(own)).untyped_storage()
    return torch.empty(0, dtype=dtype, device=own.device).set_(storage, 0, ref.shape, ref.strides)


def begins_in(memory: torch.Tensor, tensor: torch.Tensor) -> bool:
    return 0 <= tensor.data_ptr() - memory.data_ptr() < memory.numel()


def _own_bytes(memory: torch.Tensor, ref: TensorRef, dtype: torch.dtype) -> torch.Tensor:
    span = ref.span
    if ref.offset + span > memory.numel() or ref.offset % dtype.itemsize:
        raise ValueError(f"a tensor of {span} bytes does not fit at {ref.offset} of {memory.numel()}")
    return memory[ref.offset : ref.offset + span]


def describe(tensor: torch.Tensor, offset: int = 0) -> TensorRef:
    return TensorRef(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride()), offset)


def without_contents(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same dtype, shape and strides that has no memory."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def write(place: torch.Tensor, content: torch.Tensor) -> None:
    """Copies `content` to a tensor of the same shape; a repeated element (stride 0) is written once."""
    place, content = copyable(place), copyable(content)
    if 0 not in place.stride():
        place.copy_(content)
        return
    shape = stored_shape(place)
    place.as_strided(shape, place.stride()).copy_(content[tuple(map(slice, shape))])


def stored_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape with every dimension of stride 0 cut to one: the elements with memory of their own."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(min(size, 1) if stride == 0 else size for size, stride in sizes)


def copyable(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same memory in a type that PyTorch copies in every way."""
    return tensor.view(COPIED_AS[tensor.dtype]) if tensor.dtype in COPIED_AS else tensor


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a type that PyTorch compares: its bytes, where it is one of domain.dtype.CODES.

    Zeros of packed numbers lose their sign, so that numbers are equal where their bytes are.
    """
    if tensor.dtype not in _BYTES:
        return tensor
    is_packed, tensor = tensor.dtype is torch.float4_e2m1fn_x2, tensor.view(torch.uint8)
    for sign, size in ((0x80, 0x70), (0x08, 0x07)) if is_packed else ():
        tensor = tensor & ~((tensor & size).eq(0).view(torch.uint8) * sign)
    return tensor


def copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copies each source to its target of the same type, in one batch: separate small copies cost as much as calls."""
    if any(target.dtype in COPIED_AS for target in targets):
        targets, sources = ([copyable(each) for each in side] for side in (targets, sources))
    if targets:
        torch._foreach_copy_(targets, sources)


def aligned(size: int) -> int:
    """`size` in bytes, rounded up to where the next tensor may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT
