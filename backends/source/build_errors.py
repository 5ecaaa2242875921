"""Finds the line of a compiler's output that says what is wrong, and what its author can do about it.

The advice is about what torch, the linker and this service add to a source, which its compiler cannot know.
"""

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
_DECLARED = re.compile(r"\W(\w+)\W was not declared in this scope")
_SYMBOL = re.compile(r"undefined symbol: (_Z(\d+)(\w+))")
_TYPES = re.compile(r"^ *(?:argument|operand) types are: .*$", re.MULTILINE)
"""The line of nvcc's that follows an error about an operator or a function."""
_HALF = r"\b(?:half2?|__half2?|__nv_bfloat162?)\b"
_NEEDS_HALVES = (
    rf'no suitable \w+(?: function)? exists to convert .*"[^"]*{_HALF}'
    rf"|no operator [^\n]*\n *operand types are: [^\n]*{_HALF}"
    rf'|"nvcuda::wmma::fill_fragment" matches[^\n]*\n[^\n]*{_HALF}'
    r'|"(?:__half::__half|__nv_bfloat16::\w+)" matches'
)
_CUDA_IN_CPP = (
    r"\W(?:__global__|__device__|__shared__|threadIdx|blockIdx|__syncthreads)\W (?:does not name|was not declared)"
    r"|expected primary-expression before .<. token"
)
ARCHITECTURE = "without an option for the architecture, the service builds for its own GPU"
HALVES_OFF = (
    'give extra_cuda_cflags=["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF_OPERATORS__"], which undo what torch '
    "builds with (HALF2_OPERATORS and BFLOAT16_CONVERSIONS likewise), or convert with __float2half and __half2float"
)
_ADVICE = {
    r"Unsupported gpu architecture|no kernel image is available|invalid device function": ARCHITECTURE,
    r"Instruction '[\w.:]+' (?:not supported on|cannot be compiled for)|Feature '.*' not supported on \.target": (
        "the architecture that it is built for lacks the instruction: without an option for the architecture the "
        "service builds for all of its GPU's; another GPU's (tcgen05, wgmma) have no replacement"
    ),
    _CUDA_IN_CPP: "CUDA code belongs in cuda_sources, or in a file named .cu",
    _NEEDS_HALVES: HALVES_OFF,
    r"(?:c10|at)::(?:Half|BFloat16) \*[^\n]*incompatible|undefined [^\n]*data_ptr[I<]": (
        "data_ptr has torch's types, such as float, int64_t, at::Half, at::BFloat16: "
        "reinterpret_cast<__half*>(x.data_ptr<at::Half>())"
    ),
    r"(?:multiple definition|redefinition) of .*(?:PyInit_|pybind11_init)": (
        "`functions` writes a PYBIND11_MODULE: leave out `functions`, or the source's PYBIND11_MODULE"
    ),
    r"undefined symbol: _ZT?\w?N?K?(?:2at|3c10|5torch)\d": (
        "torch's libraries lack a function of that name and these types: call another"
    ),
    r"undefined reference to|undefined symbol: ": (
        "it is declared and called, and none of the sources defines it: define it, or add its library to extra_ldflags"
    ),
    r"multiple definition of": "define it in one of the sources, and only declare it in the others",
    r"fatal error: .*: No such file": "there is no such header here: put what it gives into the source",
    r"cannot find -l": "the worker lacks that library: do without it",
}
"""By patterns of nvcc 13, g++ 12 and torch; the first one that occurs counts."""


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
    if not error:  # As of a bare `assert`.
        return None
    declared = _DECLARED.search(error)
    if declared and f'm.def("{declared[1]}"' in log:
        return f"declare {declared[1]} in cpp_sources: each of `functions` needs its prototype there"
    types = _TYPES.search(log.partition(error)[2].partition("\n\n")[0])
    text = f"{error}\n{types[0]}" if types else error
    hint = next((hint for pattern, hint in _ADVICE.items() if re.search(pattern, text)), None)
    if hint is None or (hint is HALVES_OFF and "-U__CUDA_NO_HALF" in source):
        return None
    if hint is ARCHITECTURE:
        option = _ARCH_OPTION.search(source)
        if source and option is None:
            return None
        return f"remove {option[0] if option else '-arch, -gencode and TORCH_CUDA_ARCH_LIST'}: {hint}"
    symbol = _SYMBOL.search(error)
    return f"{symbol[3][: int(symbol[2])]}: {hint}" if symbol else hint
