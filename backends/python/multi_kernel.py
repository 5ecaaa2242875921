"""Kernel type `multi_kernel`: a Python entry point over several kernels (Triton, CuPy, torch)."""

from __future__ import annotations

from types import ModuleType

from backends.python.base import PythonBackend
from backends.source import entry_point
from backends.source.entry_point import Entry
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status


class MultiKernelBackend(PythonBackend):
    """Calls the function that metadata.entry_point names, with the contract's arguments by position."""

    kernel_type = KernelType.MULTI_KERNEL

    def entry(self, module: ModuleType, kernel: Kernel) -> Entry:
        name = entry_point.named_function(kernel)
        if name is None:
            raise KernelFault(Status.COMPILE_ERROR, "multi_kernel needs metadata.entry_point, the function to call")
        return entry_point.named(module, name, kernel)
