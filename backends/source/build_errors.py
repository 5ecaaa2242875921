"""Finds the line of a compiler's output that says what is wrong, and what its author can do about it."""

from __future__ import annotations

import re

_ERROR = re.compile(
    r"^.*(?:\b(?:error\b(?: #\S+)?|fatal) *: *\S"
    r"|undefined reference to|multiple definition of|cannot find -l|: not found$).*$",
    re.MULTILINE,
)
MAX_CHARS = 500
"""Maximum length of a line; the rest is cut."""
_SUMMARY = re.compile(r"ld returned \d+ exit status|assembly aborted due to errors|compilation terminated")
"""Words of a line that only counts or repeats the errors before it."""
_ARCH_OPTION = re.compile(
    r"""-(?:-?gpu-architecture|arch|-?generate-code|gencode)[=\s'",]+[\w=,\[\]]{1,99}|TORCH_CUDA_ARCH_LIST"""
)
_HINTS = (
    (
        re.compile(r"Unsupported gpu architecture|no kernel image is available|invalid device function"),
        "without an option for the architecture, the service builds for its own GPU",
    ),
    (
        re.compile(r"\W(?:__global__|__device__)\W does not name a type|expected primary-expression before .<. token"),
        "CUDA code belongs in cuda_sources, or in a file named .cu",
    ),
    (
        re.compile(
            r'no suitable \w+(?: function)? exists to convert .*"(?:__half|__nv_bfloat16)|"__half|"__nv_bfloat16'
            r"|operand types are: .*(?:__half|__nv_bfloat16)"
        ),
        "torch disables implicit conversions and operators of half types: convert with __float2half, or give "
        'extra_cuda_cflags=["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF_OPERATORS__"]',
    ),
    (
        re.compile(r"uses too much shared data"),
        "a block has 48 KiB of static shared memory: declare more as `extern __shared__`, and raise the kernel's limit "
        "with cudaFuncSetAttribute",
    ),
    (
        re.compile(r"undefined reference to|undefined symbol: "),
        "it is declared and called, and none of the sources defines it: define it, or add its library to extra_ldflags",
    ),
    (re.compile(r"multiple definition of"), "define it in one of the sources, and only declare it in the others"),
    (re.compile(r"fatal error: .*: No such file"), "there is no such header here: put what it gives into the source"),
    (re.compile(r"cannot find -l"), "the worker lacks that library: do without it"),
)
_DECLARED = re.compile(r"\W(\w+)\W was not declared in this scope")
_SYMBOL = re.compile(r"undefined symbol: (_Z(\d+)(\w+))")


def first_error(text: str) -> str | None:
    """The first line that names an error, else the first that counts them; None without either.

    Knows the output of nvcc, cicc, ptxas, NVRTC, g++, the linker and ninja.
    """
    lines = [match[0].strip()[:MAX_CHARS] for match in _ERROR.finditer(text)]
    return next((line for line in lines if not _SUMMARY.search(line)), lines[0] if lines else None)


def advice(error: str, log: str = "", source: str = "") -> str | None:
    """Says what to do about this line or message; None where that is not known.

    `log` is the whole output, `source` the submission, in which the option at fault is looked up.
    """
    declared = _DECLARED.search(error)
    if declared and f'm.def("{declared[1]}"' in log:
        return f"declare {declared[1]} in cpp_sources: each of `functions` needs its prototype there"
    # nvcc names the types on the line after the error.
    text = f"{error}\n{log}" if "no operator" in error else error
    hint = next((hint for pattern, hint in _HINTS if pattern.search(text)), None)
    if hint is None:
        return None
    if hint is _HINTS[0][1]:
        option = _ARCH_OPTION.search(source)
        return f"remove {option[0] if option else '-arch, -gencode and TORCH_CUDA_ARCH_LIST'}: {hint}"
    symbol = _SYMBOL.search(error)
    return f"{symbol[3][: int(symbol[2])]}: {hint}" if symbol else hint
