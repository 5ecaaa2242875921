"""The type of a kernel: the language or framework of its source."""

from __future__ import annotations

from enum import Enum


class KernelType(str, Enum):
    """The language or framework of a source."""

    TORCH = "torch"
    TORCH_CUDA = "torch_cuda"
    TRITON = "triton"
    CUDA = "cuda"
    MULTI_KERNEL = "multi_kernel"
    GLUON = "gluon"
    HELION = "helion"
    TILELANG = "tilelang"
    CUTE_DSL = "cute_dsl"

    def __str__(self) -> str:
        return self.value
