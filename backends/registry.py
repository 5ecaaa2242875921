"""Maps each kernel type to its backend, one line a type; the backend is imported at its first use."""

from __future__ import annotations

import importlib

from backends.base import Backend
from domain.kernel import KernelType

BACKENDS: dict[KernelType, str] = {
    KernelType.TORCH: "backends.python.torch_module:TorchBackend",
    KernelType.TORCH_CUDA: "backends.python.torch_cuda:TorchCudaBackend",
    KernelType.TRITON: "backends.triton.backend:TritonBackend",
    KernelType.CUDA: "backends.python.cuda_source:CudaSourceBackend",
    KernelType.MULTI_KERNEL: "backends.python.multi_kernel:MultiKernelBackend",
    KernelType.GLUON: "backends.triton.backend:GluonBackend",
    KernelType.HELION: "backends.python.language_types:HelionBackend",
    KernelType.TILELANG: "backends.python.language_types:TileLangBackend",
    KernelType.CUTE_DSL: "backends.python.language_types:CuteDslBackend",
}


def backend(kernel_type: KernelType) -> Backend:
    """The backend of that type. Its libraries are imported here, so that only jobs that use a type pay for it."""
    module, _, name = BACKENDS[kernel_type].partition(":")
    instance: Backend = getattr(importlib.import_module(module), name)()
    return instance
