"""Guesses the type of a kernel from its source, and says so where the source cannot be of the type that was named.

The client has the same rules (`kernel_eval_client.kernel_guess`), because it imports nothing of the server; a test
compares the two files.
"""

from __future__ import annotations

import re

from domain.kernel import KernelType

CUDA_FILES = (".cu", ".cuh", ".cpp", ".cc")
NAMES = {
    KernelType.TORCH: "PyTorch",
    KernelType.TORCH_CUDA: "PyTorch with inline CUDA",
    KernelType.TRITON: "Triton",
    KernelType.CUDA: "CUDA C++",
    KernelType.MULTI_KERNEL: "Python over several kernels",
    KernelType.GLUON: "Gluon",
    KernelType.HELION: "Helion",
    KernelType.TILELANG: "TileLang",
    KernelType.CUTE_DSL: "CuTe DSL",
}
LOOKS_LIKE = "this looks like "
_TRITON = re.compile(r"^[ \t]*@(?:triton\.)?(?:jit|autotune|heuristics)\b", re.MULTILINE)
_LANGUAGES = {
    kernel_type: re.compile(rf"^[ \t]*@{decorator}\b", re.MULTILINE)
    for kernel_type, decorator in (
        (KernelType.GLUON, r"gluon\.jit"),
        (KernelType.HELION, r"helion\.kernel"),
        (KernelType.TILELANG, r"tilelang\.jit"),
        (KernelType.CUTE_DSL, r"cute\.(?:jit|kernel)"),
    )
}
"""The decorators that show a kernel's language."""
_PYTHON = re.compile(
    r"^[ \t]*(?:import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b|def[ \t]+\w+[ \t]*\(|class[ \t]+\w[^;{\n]*:[ \t]*$|@\w)",
    re.MULTILINE,
)
_CUDA = re.compile(r"\b__global__\b|^[ \t]*#[ \t]*include\b", re.MULTILINE)
_C_COMMENT = re.compile(r"^[ \t]*/\*.*?(?:\*/|\Z)", re.MULTILINE | re.DOTALL)
"""Documentation such as "@brief …" stands there, which looks like a decorator."""
_OF_TORCH = re.compile(r"\btorch::|\bat::Tensor\b|PYBIND11_MODULE|TORCH_LIBRARY")
_EXTENSIONS = ("load_inline", "cpp_extension", "RawKernel", "RawModule")


def guess_type(source: str, file_name: str = "") -> KernelType:
    """Guesses the type from the file's suffix, else from the source.

    It never guesses `multi_kernel`: a function over Triton kernels is `triton`.
    """
    if file_name.endswith(CUDA_FILES) or is_cpp(source):
        return KernelType.TORCH_CUDA if _OF_TORCH.search(source) else KernelType.CUDA
    if any(word in source for word in _EXTENSIONS):
        return KernelType.TORCH_CUDA
    if uses_triton(source):
        return KernelType.TRITON
    return next(
        (kernel_type for kernel_type, decorator in _LANGUAGES.items() if decorator.search(source)), KernelType.TORCH
    )


def uses_triton(source: str) -> bool:
    """Whether a source defines a Triton kernel."""
    return _TRITON.search(source) is not None


def other_type(source: str, kernel_type: KernelType) -> str | None:
    """Says which type the source has where it cannot have this one, such as Python sent as `cuda`; else None."""
    guess = guess_type(source)
    if is_cpp(source):
        return looks_like(guess) if guess is not kernel_type else None
    return looks_like(guess) if _is_python(source) and kernel_type is KernelType.CUDA else None


def is_cpp(source: str) -> bool:
    """Whether the source is C++ or CUDA C++: Python that holds some, or does not parse, is Python."""
    return _CUDA.search(source) is not None and not _is_python(source)


def _is_python(source: str) -> bool:
    return _PYTHON.search(_C_COMMENT.sub("", source)) is not None


def looks_like(guess: KernelType) -> str:
    """The sentence about a source of that type."""
    contract = {
        KernelType.CUDA: " with its contract in `io`",
        KernelType.TRITON: " (with a contract in `io`, unless a Python function of it launches the kernel)",
    }
    return f"{LOOKS_LIKE}{NAMES[guess]}: send it as `{guess}`{contract.get(guess, '')}"
