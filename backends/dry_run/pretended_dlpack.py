"""Hands fake tensors to other libraries by DLPack: with a shape, and an address that nothing reads."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

CUDA = 2
"""kDLCUDA of dlpack.h, whose structures follow."""
ADDRESS = 1 << 32
"""A multiple of every alignment, as a new tensor's address on a GPU is."""
_CODES = {
    **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), 0),
    **dict.fromkeys((torch.uint8, torch.uint16, torch.uint32, torch.uint64), 1),
    **dict.fromkeys((torch.float16, torch.float32, torch.float64), 2),
    torch.bfloat16: 4,
    **dict.fromkeys((torch.complex64, torch.complex128), 5),
    torch.bool: 6,
    torch.float8_e4m3fn: 10,
    torch.float8_e5m2: 12,
    torch.float8_e8m0fnu: 14,
    torch.float4_e2m1fn_x2: 17,
}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_made: list[_Managed] = []
"""The targets of the capsules' pointers, for as long as the process lives."""


def pretend_dlpack() -> None:
    """Replaces what `from_dlpack` of other libraries calls, in this process for good."""
    methods: dict[str, Any] = {"__dlpack__": _capsule, "__dlpack_device__": lambda tensor: (CUDA, 0)}
    for name, method in methods.items():
        setattr(FakeTensor, name, method)


def _capsule(tensor: torch.Tensor, **options: Any) -> Any:
    """A DLManagedTensor of a fake tensor. Raises BufferError for a dtype that DLPack does not have."""
    if tensor.dtype not in _CODES:
        raise BufferError(f"DLPack has no {tensor.dtype}")
    lanes = 2 if tensor.dtype is torch.float4_e2m1fn_x2 else 1
    sizes = ctypes.c_int64 * tensor.ndim
    managed = _Managed(
        _Tensor(
            ADDRESS + tensor.storage_offset() * tensor.itemsize,
            CUDA,
            0,
            tensor.ndim,
            _CODES[tensor.dtype],
            8 * tensor.itemsize // lanes,
            lanes,
            sizes(*tensor.shape),
            sizes(*tensor.stride()),
            0,
        )
    )
    _made.append(managed)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(managed), b"dltensor", None)
