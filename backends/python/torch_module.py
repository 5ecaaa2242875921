"""Kernel type `torch`: a PyTorch module class or a function."""

from __future__ import annotations

from backends.python.base import PythonBackend
from domain.kernel import KernelType


class TorchBackend(PythonBackend):
    """`ModelNew` or `Model`, else a function; named in the metadata where the source has several."""

    kernel_type = KernelType.TORCH
