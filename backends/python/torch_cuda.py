"""Kernel type `torch_cuda`: PyTorch with CUDA of its own through load_inline or load, run as it was written."""

from __future__ import annotations

from backends.python.base import PythonBackend
from domain.kernel import KernelType


class TorchCudaBackend(PythonBackend):
    """Called as `torch` is: `backends.extensions.jit_build` does the rest."""

    kernel_type = KernelType.TORCH_CUDA
