"""Finds the line of a compiler's output that says what is wrong, and what its author can do about it.

The advice is about what torch, the linker and this service add to a source, which its compiler cannot know. It is also
about what CUDA lacks or has removed, and about errors that do not name what is missing.
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
_TYPES = re.compile(r"(?:\n +(?!(?:argument|operand) types).*){0,40}\n +((?:argument|operand) types are: .*)")
"""The line of nvcc's that follows an error about an operator or a function, and its candidates."""
_HALF = r"\b(?:half2?|__half2?|__nv_bfloat162?)\b"
_NEEDS_HALVES = (
    rf'no suitable (?:constructor exists to convert|conversion function) .*"[^"]*{_HALF}'
    rf"|no operator .*operand types are: .*{_HALF}"
    rf'|"nvcuda::wmma::fill_fragment" matches.*{_HALF}'
    r'|"(?:__half::__half|__nv_bfloat16::\w+)" matches'
)
_CUDA_IN_CPP = (
    r"\W(?:__global__|__device__|__shared__|threadIdx|blockIdx|__syncthreads)\W (?:does not name|was not declared)"
    r"|expected primary-expression before .<. token"
)
ARCHITECTURE = "without an option for the architecture, the service builds for its own GPU"
HALVES_OFF = (
    "convert with __half2float and __float2half, or undo what torch builds with: "
    'extra_cuda_cflags=["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF_OPERATORS__"]; HALF2_OPERATORS and '
    "BFLOAT16_CONVERSIONS likewise"
)
_OF_CUDA = {
    r'"atomic(?:Max|Min)" matches.*(?:float|double|half)': (
        "CUDA has it for integers only: loop over atomicCAS, or reduce in the block first"
    ),
    r'namespace "cub" has no member "(?:Sum|Max|Min|Equality|Inequality)"': (
        "CUDA 13 removed it: cuda::std::plus<>{} of <cuda/std/functional>, cuda::maximum<>{} and cuda::minimum<>{} of "
        "<cuda/functional>"
    ),
    r'"__(?:shfl(?:_up|_down|_xor)?|ballot|any|all)" is undefined': (
        "it takes a mask: __shfl_down_sync(0xffffffff, value, offset), __ballot_sync, __any_sync"
    ),
    r'name must be a namespace name|name followed by "::" must be': (
        "include the header of the namespace in this line, such as <mma.h>, <cooperative_groups.h>, <cub/cub.cuh>"
    ),
    r"variable.length array|expression must have a constant value": (
        "make it a constexpr or a template parameter; shared memory whose size the launch gives is `extern __shared__`"
    ),
    r'declaration is incompatible with previous "': (
        "`extern __shared__` memory of one name has one type in all kernels: declare it as unsigned char, and cast it"
    ),
    r"uses too much shared data": (
        "static shared memory is limited: declare it `extern __shared__`, and raise the kernel's limit with "
        "cudaFuncSetAttribute"
    ),
}
"""Advice about errors in device code, by patterns of nvcc's and NVRTC's messages."""
_ADVICE = {
    **_OF_CUDA,
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
    r'"at::cuda|"c10::cuda|namespace "(?:at|c10)" has no member "cuda"|"C10_CUDA_\w+" is undefined': (
        "include <ATen/cuda/CUDAContext.h> for streams, <c10/cuda/CUDAGuard.h> for guards, <c10/cuda/CUDAException.h> "
        "for checks"
    ),
    r"at::DeprecatedTypeProperties": "give x.scalar_type() in place of x.type()",
    r"\W(?:AT_CHECK|AT_ASSERTM?|THCudaCheck|THArgCheck)\W|fatal error: THC?/": (
        "torch removed it: TORCH_CHECK(condition, text), C10_CUDA_CHECK(error) of <c10/cuda/CUDAException.h>"
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
    """The first line that names an error, with the types that a later one gives, else the first that counts them; None
    without either.

    Knows the output of nvcc, cicc, ptxas, NVRTC, g++, the linker and ninja.
    """
    errors = list(_ERROR.finditer(text))
    match = next((each for each in errors if not _SUMMARY.search(each[0])), errors[0] if errors else None)
    if match is None:
        return None
    types = _TYPES.match(text, match.end())
    return f"{match[0].strip().rstrip(':')}; {types[1]}"[:MAX_CHARS] if types else match[0].strip()[:MAX_CHARS]


def of_cuda(error: str) -> str | None:
    """Says what to do about a compiler's error in device code; None where that is not known."""
    return _first(_OF_CUDA, error)


def advice(error: str, log: str = "", source: str = "") -> str | None:
    """Says what to do about this line or message; None where that is not known.

    `log` is the whole output, `source` the submission, in which the option at fault is looked up.
    """
    declared = _DECLARED.search(error)
    if declared and f'm.def("{declared[1]}"' in log:
        return f"declare {declared[1]} in cpp_sources: each of `functions` needs its prototype there"
    hint = _first(_ADVICE, error)
    if hint is None or (hint is HALVES_OFF and "-U__CUDA_NO_HALF" in source):
        return None
    if hint is ARCHITECTURE:
        option = _ARCH_OPTION.search(source)
        if source and option is None:
            return None
        return f"remove {option[0] if option else '-arch, -gencode and TORCH_CUDA_ARCH_LIST'}: {hint}"
    symbol = _SYMBOL.search(error)
    return f"{symbol[3][: int(symbol[2])]}: {hint}" if symbol else hint


def _first(table: dict[str, str], error: str) -> str | None:
    return next((hint for pattern, hint in table.items() if re.search(pattern, error)), None)
