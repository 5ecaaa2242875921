"""Tells from a compiler's output that the worker's toolkit is incomplete: its operator mends that, no source."""

from __future__ import annotations

import re

_ADVICE = "its operator takes a base image with a whole toolkit that fits (WORKER_BASE)"
_OTHERS = (
    *("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "nccl"),
    *("cooperative_groups", "cub/", "cuda/", "crt/", "nv/", "thrust/"),
)
_OWN = (
    *("", "_awbarrier", "_awbarrier_primitives", "_bf16", "_device_runtime_api", "_fp16", "_fp4", "_fp6", "_fp8"),
    *("_occupancy", "_pipeline", "_pipeline_primitives", "_profiler_api", "_runtime", "_runtime_api"),
)
_HEADERS = frozenset({*(f"cuda{part}.h" for part in _OWN), "math_constants.h", "mma.h", "vector_types.h"})
_LIBRARIES = frozenset(
    {"cublas", "cublasLt", "cuda", "cudadevrt", "cudart", "cudart_static", "cudnn", "cufft", "curand", "cusolver"}
    | {"cusparse", "nvrtc"}
)
_CUTLASS = ("cutlass/", "cute/")
_TORCHS = ("ATen/cuda/", "c10/cuda/", "torch/csrc/cuda/")
_PROGRAM = r"(?:nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink|c\+\+|g\+\+|gcc|cc1plus|as|ld)"

_LIBRARY = re.compile(r"^/usr/|/(?:site|dist)-packages/|/cuda[\w.-]*/(?:\S+/)?include/")
"""In the path of a file that is not the source's."""
_MISSING_HEADER = re.compile(r"^(\S+?):\d+:\d+: fatal error: (\S+): No such file", re.MULTILINE)
_MISSING_LIBRARY = re.compile(r"^\S*ld: cannot find -l(\w+)", re.MULTILINE)
_MISSING_PROGRAM = re.compile(
    rf"^(?:/bin/)?sh: (?:\d+: |line \d+: )?(\S*\b{_PROGRAM}): (?:command )?not found"
    rf"|^(?:\S+: )?fatal error: cannot execute .({_PROGRAM})\W"
    rf"|No such file or directory: '(\S*/{_PROGRAM})'"
    r"|^nvcc fatal\s*: (?:Cannot find compiler|Compiler) '([^']+)'",
    re.MULTILINE,
)
_UNFIT_COMPILER = re.compile(
    r"^.*(unsupported GNU version!|Host compiler targets unsupported OS|Failed to preprocess host compiler properties)",
    re.MULTILINE,
)
_OLD_TOOLKIT = re.compile(r"^nvcc fatal\s*: Unsupported gpu architecture '(\w+)'", re.MULTILINE)
_CHOICE = re.compile(r"\b(?:sm|compute)_\d|-arch\b|TORCH_CUDA_ARCH_LIST")


def missing_part(text: str, source: str) -> str | None:
    """Names what the compiler that wrote `text` lacks and what the operator does; None if the source may be at fault.

    A header is the operator's part if it belongs to CUDA, torch's CUDA part or CUTLASS, or if a library includes it.
    An architecture is, if the source chooses none.
    """
    if (header := _header(text)) is not None:
        if header.startswith(_CUTLASS):
            return f"this worker has no CUTLASS ({header}): its operator installs the package nvidia-cutlass"
        if header.startswith(_TORCHS):
            return f"this worker's torch has no CUDA part ({header} is missing): send it to a service with GPUs"
        return _incomplete(header)
    for library in _MISSING_LIBRARY.findall(text):
        if library in _LIBRARIES:
            return _incomplete(f"lib{library}")
    if program := _MISSING_PROGRAM.search(text):
        return _incomplete(next(name for name in program.groups() if name))
    if unfit := _UNFIT_COMPILER.search(text):
        return f"this worker's C++ compiler does not go with its CUDA toolkit ({unfit[1]}): {_ADVICE}"
    if (old := _OLD_TOOLKIT.search(text)) and not _CHOICE.search(source):
        return f"this worker's CUDA toolkit is too old for its GPU ({old[1]}): {_ADVICE}"
    return None


def _header(text: str) -> str | None:
    """The header that ended the compilation, where the source could not have brought it."""
    for includer, header in _MISSING_HEADER.findall(text):
        if _LIBRARY.search(includer) or header in _HEADERS or header.startswith((*_OTHERS, *_CUTLASS, *_TORCHS)):
            return str(header)
    return None


def _incomplete(lacks: str) -> str:
    return f"this worker's CUDA toolkit is incomplete ({lacks} is missing): {_ADVICE}"
