"""Maps each kernel type to its backend, one line a type; the backend is imported at its first use.

Most types of Python sources differ in nothing that a backend does.
"""

from __future__ import annotations

import importlib

from backends.base import Backend
from domain.kernel import KernelType

PYTHON = "backends.python.base:PythonBackend"
BACKENDS: dict[KernelType, str] = {
    KernelType.TORCH: PYTHON,
    KernelType.TORCH_CUDA: "backends.python.torch_cuda:TorchCudaBackend",
    KernelType.TRITON: "backends.triton.backend:TritonBackend",
    KernelType.CUDA: "backends.python.cuda_source:CudaSourceBackend",
    KernelType.MULTI_KERNEL: PYTHON,
    KernelType.GLUON: "backends.triton.backend:TritonBackend",
    KernelType.HELION: PYTHON,
    KernelType.TILELANG: PYTHON,
    KernelType.CUTE_DSL: PYTHON,
}


def backend(kernel_type: KernelType) -> Backend:
    """The backend of that type. Its libraries are imported here, so that only jobs that use a type pay for it."""
    module, _, name = BACKENDS[kernel_type].partition(":")
    instance: Backend = getattr(importlib.import_module(module), name)()
    return instance
