"""Which backend serves which kernel type: one line a type, imported when first asked for."""

from __future__ import annotations

import importlib

from backends.base import Backend
from domain.kernel import KernelType

BACKENDS: dict[KernelType, str] = {
    KernelType.TORCH: "backends.python.torch_module:TorchBackend",
    KernelType.TORCH_CUDA: "backends.python.torch_extension:TorchCudaBackend",
    KernelType.TRITON: "backends.triton.backend:TritonBackend",
    KernelType.CUDA: "backends.cuda.backend:CudaBackend",
    KernelType.MULTI_KERNEL: "backends.python.multi_kernel:MultiKernelBackend",
}


def backend(kernel_type: KernelType) -> Backend:
    """The backend of that type; its libraries are imported now, so that a type costs only those who use it."""
    module, _, name = BACKENDS[kernel_type].partition(":")
    found: Backend = getattr(importlib.import_module(module), name)()
    return found
