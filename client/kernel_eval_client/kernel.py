"""A kernel to judge: its source, type, contract and metadata."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_eval_client.contract import IOContract
from kernel_eval_client.kernel_guess import guess_type
from kernel_eval_client.kernel_type import KernelType

__all__ = [
    "METADATA",
    "Kernel",
    "KernelType",
    "Source",
    "cuda",
    "guess_type",
    "multi_kernel",
    "torch",
    "torch_cuda",
    "triton",
]

Source = str | Path
"""Source text, or the path of a file with it."""

_FILE_NAME = re.compile(r"[^\n(){}=;]+\.(?:py|cu|cuh|cpp|cc)")
METADATA = frozenset(
    {
        *("function_name", "class_name", "method_name", "entry_point", "kernel_name", "functions"),
        *("compiler_options", "compile_options", "name_expressions", "backend"),
        *("jitify", "include_dirs", "libraries", "extra_ldflags", "extra_cuda_cflags"),
    }
)
"""Keys of `metadata` that the service accepts; docs/api.md says which kernel types use them."""


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
    """PyTorch with inline CUDA, or a C++ file over torch::Tensor, of which `functions` names those to bind."""
    return _kernel(source, KernelType.TORCH_CUDA, io, metadata)


def triton(source: Source, io: IOContract | None = None, **metadata: Any) -> Kernel:
    """Triton: a bare `@triton.jit` kernel, which needs `io`, or Python that launches its own."""
    return _kernel(source, KernelType.TRITON, io, metadata)


def cuda(source: Source, io: IOContract, **metadata: Any) -> Kernel:
    """CUDA C++: a `__global__` function (`kernel_name`), or the host function `entry_point` that launches kernels.

    Further metadata: `compiler_options`, `name_expressions`.
    """
    return _kernel(source, KernelType.CUDA, io, metadata)


def multi_kernel(source: Source, io: IOContract, *, entry_point: str, **metadata: Any) -> Kernel:
    """Python over several kernels: `entry_point` is the function to call."""
    return _kernel(source, KernelType.MULTI_KERNEL, io, {"entry_point": entry_point, **metadata})


def _kernel(source: Source, kernel_type: KernelType, io: IOContract | None, metadata: dict[str, Any]) -> Kernel:
    if isinstance(source, str) and _FILE_NAME.fullmatch(source):
        raise ValueError(f"{source!r} is the name of a file, not source text: give pathlib.Path({source!r})")
    for name in metadata.keys() - METADATA:
        close = difflib.get_close_matches(name, METADATA, 1)
        meant = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(METADATA))};"
        raise TypeError(f"{name} is no metadata of a kernel: {meant} Kernel(…, metadata=…) takes any")
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    return Kernel(text, kernel_type, io, metadata or None)


def entry_key(kernel_type: KernelType, source: str, entry: str) -> str:
    """The key of `metadata` that names what to call."""
    if kernel_type is KernelType.CUDA:
        is_kernel = re.search(rf"__global__[^;{{}}]*\b{re.escape(entry.partition('<')[0])}\s*[(<]", source)
        is_function = re.search(rf"\b{re.escape(entry)}\s*\(", source)
        return "entry_point" if is_function and not is_kernel else "kernel_name"
    jitted = dict.fromkeys((KernelType.TRITON, KernelType.GLUON), "kernel_name")
    return {**jitted, KernelType.MULTI_KERNEL: "entry_point"}.get(kernel_type, "function_name")
