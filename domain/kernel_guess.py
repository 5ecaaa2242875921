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
}
LOOKS_LIKE = "this looks like "
_TRITON = re.compile(r"^[ \t]*@(?:triton\.)?(?:jit|autotune|heuristics)\b", re.MULTILINE)
_PYTHON = re.compile(
    r"^[ \t]*(?:import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b|def[ \t]+\w+[ \t]*\(|class[ \t]+\w+[^;{\n]*:[ \t]*$|@\w)",
    re.MULTILINE,
)
_CUDA = re.compile(r"\b__global__\b|^[ \t]*#[ \t]*include\b", re.MULTILINE)
_EXTENSIONS = ("load_inline", "cpp_extension", "RawKernel", "RawModule")


def guess_type(source: str, file_name: str = "") -> KernelType:
    """Guesses the type from the file's suffix, else from the source.

    It never guesses `multi_kernel`: a function over Triton kernels is `triton`.
    """
    if file_name.endswith(CUDA_FILES):
        return KernelType.CUDA
    if _CUDA.search(source) and not _PYTHON.search(source):
        return KernelType.CUDA
    if any(word in source for word in _EXTENSIONS):
        return KernelType.TORCH_CUDA
    return KernelType.TRITON if uses_triton(source) else KernelType.TORCH


def uses_triton(source: str) -> bool:
    """Whether a source defines a Triton kernel."""
    return _TRITON.search(source) is not None


def other_type(source: str, kernel_type: KernelType) -> str | None:
    """Says which type the source has where it cannot have this one, such as Python sent as `cuda`; else None."""
    guess = guess_type(source)
    wrong_language = (guess is KernelType.CUDA) != (kernel_type is KernelType.CUDA)
    readable = guess is KernelType.CUDA or _PYTHON.search(source) is not None
    return looks_like(guess) if wrong_language and readable else None


def looks_like(guess: KernelType) -> str:
    """The sentence about a source of that type."""
    contract = {
        KernelType.CUDA: " with its contract in `io`",
        KernelType.TRITON: " (with a contract in `io`, unless a Python function of it launches the kernel)",
    }
    return f"{LOOKS_LIKE}{NAMES[guess]}: send it as `{guess}`{contract.get(guess, '')}"
