"""A kernel to judge: its source, type, contract and metadata; and a guess of the type from a source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from kernel_eval_client.contract import IOContract

Source = str | Path
"""Source text, or the path of a file with it."""

_CUDA_FILES = (".cu", ".cuh", ".cpp", ".cc")
_FILE_NAME = re.compile(r"[^\n(){}=;]+\.(?:py|cu|cuh|cpp|cc)")
METADATA = frozenset(
    {
        *("function_name", "class_name", "method_name", "entry_point", "kernel_name"),
        *("compiler_options", "compile_options", "name_expressions", "backend"),
        *("jitify", "include_dirs", "libraries", "extra_ldflags", "extra_cuda_cflags"),
    }
)
"""Keys of `metadata` that the service accepts; docs/api.md says which kernel types use them."""


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


@dataclass(frozen=True)
class Kernel:
    """One kernel. `metadata` names the function to call and compiler options: see docs/api.md."""

    source_code: str
    kernel_type: KernelType | str
    io: IOContract | Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The wire's form."""
        wire: dict[str, Any] = {"source_code": self.source_code, "kernel_type": str(self.kernel_type)}
        if self.io is not None:
            wire["io"] = self.io.to_dict() if isinstance(self.io, IOContract) else dict(self.io)
        if self.metadata is not None:
            wire["metadata"] = dict(self.metadata)
        return wire

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Kernel:
        """From the wire's form; raises KeyError without a source or a type, ValueError for an unknown type."""
        io = wire.get("io")
        return cls(
            wire["source_code"],
            KernelType(wire["kernel_type"]),
            None if io is None else IOContract.from_dict(io),
            wire.get("metadata"),
        )


def torch(source: Source, io: IOContract | None = None, **metadata: Any) -> Kernel:
    """PyTorch: a class `Model` or `ModelNew`, a `kernel_fn`, or the `function_name` or `class_name` in the metadata."""
    return _kernel(source, KernelType.TORCH, io, metadata)


def torch_cuda(source: Source, io: IOContract | None = None, **metadata: Any) -> Kernel:
    """PyTorch with inline CUDA."""
    return _kernel(source, KernelType.TORCH_CUDA, io, metadata)


def triton(source: Source, io: IOContract | None = None, **metadata: Any) -> Kernel:
    """Triton: a bare `@triton.jit` kernel, which needs `io`, or Python that launches its own."""
    return _kernel(source, KernelType.TRITON, io, metadata)


def cuda(source: Source, io: IOContract, **metadata: Any) -> Kernel:
    """CUDA C++: a `__global__` function. Metadata: `kernel_name`, `compiler_options`, `name_expressions`."""
    return _kernel(source, KernelType.CUDA, io, metadata)


def multi_kernel(source: Source, io: IOContract, *, entry_point: str, **metadata: Any) -> Kernel:
    """Python over several kernels: `entry_point` is the function to call."""
    return _kernel(source, KernelType.MULTI_KERNEL, io, {"entry_point": entry_point, **metadata})


_LANGUAGES = {
    kernel_type: re.compile(rf"^\s*@{decorator}\b", re.MULTILINE)
    for kernel_type, decorator in (
        (KernelType.TRITON, r"(?:triton\.)?(?:jit|autotune|heuristics)"),
        (KernelType.GLUON, r"gluon\.jit"),
        (KernelType.HELION, r"helion\.kernel"),
        (KernelType.TILELANG, r"tilelang\.jit"),
        (KernelType.CUTE_DSL, r"cute\.(?:jit|kernel)"),
    )
}
"""The decorators that show a kernel's language."""


def _kernel(source: Source, kernel_type: KernelType, io: IOContract | None, metadata: dict[str, Any]) -> Kernel:
    if isinstance(source, str) and _FILE_NAME.fullmatch(source):
        raise ValueError(f"{source!r} is the name of a file, not source text: give pathlib.Path({source!r})")
    for name in metadata.keys() - METADATA:
        close = difflib.get_close_matches(name, METADATA, 1)
        meant = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(METADATA))};"
        raise TypeError(f"{name} is no metadata of a kernel: {meant} Kernel(…, metadata=…) takes any")
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    return Kernel(text, kernel_type, io, metadata or None)


def guess_type(source: str, file_name: str = "") -> KernelType:
    """Guesses the type from the file's suffix, else from the source.

    It never guesses `multi_kernel`: a function over Triton kernels is `triton`.
    """
    if file_name.endswith(_CUDA_FILES):
        return KernelType.CUDA
    if "load_inline" in source or "cpp_extension" in source or "RawKernel" in source or "RawModule" in source:
        return KernelType.TORCH_CUDA
    for kernel_type, pattern in _LANGUAGES.items():
        if pattern.search(source):
            return kernel_type
    if "__global__" in source and not re.search(r"^\s*(?:import|from|def|class)\s+\w", source, re.MULTILINE):
        return KernelType.CUDA
    return KernelType.TORCH
