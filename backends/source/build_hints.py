"""Says what the author of a source can do about a compiler's error, in texts of nvcc 13, g++ 12 and torch."""

from __future__ import annotations

import re

_HALF = r"\b(?:half2?|__half2?|__nv_bfloat162?)\b"
ARCHITECTURE = "without an option for the architecture, the service builds for its own GPU"

_HALVES_OFF = (
    'give extra_cuda_cflags=["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF_OPERATORS__"], which undo what torch '
    "builds with (HALF2_OPERATORS and BFLOAT16_CONVERSIONS likewise), or convert with __float2half and __half2float"
)
_NAMES: dict[str, str] = {
    "cuda_fp16.h": r"__half\w*|half2?|__float2half\w*|__h(?:add|mul|fma|max|min)\w*",
    "cuda_bf16.h": r"__nv_bfloat\w*|nv_bfloat\w*|__float2bfloat16\w*",
    "cuda_fp8.h": r"__nv_fp8\w*",
    "cuda_pipeline.h": r"__pipeline_\w+",
    "curand_kernel.h": r"curand\w*",
    "math_constants.h": r"CUDART_\w+",
    "cfloat": r"(?:FLT|DBL)_\w+",
    "climits": r"(?:U?INT|LONG|LLONG|CHAR)_(?:MAX|MIN)",
    "cstdint": r"u?int(?:8|16|32|64)_t",
    "cstdio": r"f?printf|stderr",
    "cassert": r"assert",
    "torch/extension.h": r"TORCH_(?:CHECK|LIBRARY\w*)|PYBIND11_MODULE|AT_DISPATCH_\w+",
    "ATen/cuda/CUDAContext.h": r"getCurrentCUDAStream|AT_CUDA_CHECK",
    "c10/cuda/CUDAException.h": r"C10_CUDA_\w+",
}
"""The names of each header that sources use without including it."""
_SPACES: dict[str, str] = {
    "mma.h": r"\bnvcuda\b",
    "cooperative_groups.h": r"\bcooperative_groups\b",
    "cub/cub.cuh": r"\bcub::",
    "torch/extension.h": r"\b(?:torch|at|c10)::",
}
_OF_STD = {"cout": "iostream", "cerr": "iostream", "endl": "iostream", "sort": "algorithm", "numeric_limits": "limits"}

_UNDEFINED = re.compile(r'(?:identifier|namespace "at::cuda" has no member) "(\w+)"|\W(\w+)\W was not declared in this')
_UNKNOWN_SPACE = re.compile(r"name must be a namespace name|name followed by \"::\" must be|has not been declared")
_STD_MEMBER = re.compile(r'namespace "std" has no member "(\w+)"')
_FOLLOWED = re.compile(r"no operator|no instance of|more than one|name must be|name followed by|is incompatible with")
"""Errors that the two lines after them explain: types, and the line of the source."""

_HINTS = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"Unsupported gpu architecture|no kernel image is available|invalid device function", ARCHITECTURE),
        (
            r"\W(?:__global__|__device__|__shared__|threadIdx|blockIdx|__syncthreads)\W (?:does not name a type|was "
            r"not declared)|expected primary-expression before .<. token",
            "CUDA code belongs in cuda_sources, or in a file named .cu",
        ),
        (
            rf'no suitable \w+(?: function)? exists to convert .*"[^"]*{_HALF}|operand types are: [^\n]*{_HALF}'
            rf'|"(?:nvcuda::wmma::fill_fragment|__half::__half|__nv_bfloat16::\w+)" matches[^\n]*\n[^\n]*{_HALF}'
            r'|"(?:__half::__half|__nv_bfloat16::\w+)" matches',
            _HALVES_OFF,
        ),
        (
            rf"more than one [^\n]*{_HALF}|more than one operator[^\n]*\n[^\n]*{_HALF}",
            "name the conversion: __half2float(x) or __float2half(x)",
        ),
        (
            r'"atomic(?:Max|Min)" matches[^\n]*\n[^\n]*(?:float|double|half)',
            "CUDA has it for integers only: loop over atomicCAS, or reduce in the block first",
        ),
        (
            r'"atomic\w+" matches',
            "pointer and value have to be of one type: int, unsigned, unsigned long long, float, double, __half, "
            "__nv_bfloat16; cast both, int64_t to unsigned long long, at::Half to __half",
        ),
        (
            rf'no instance of [^\n]*"\w+" matches[^\n]*\n[^\n]*{_HALF}',
            "half types have functions of their own, such as __hmax and hexp: call these, or convert with __half2float",
        ),
        (
            r'(?:no|more than one) instance of [^\n]*"(?:std::)?(?:max|min|pow)" matches',
            "give both arguments the same type, for example 1.0f beside a float",
        ),
        (
            r"(?:c10|at)::(?:Half|BFloat16) \*[^\n]*incompatible|data_ptr(?:I\d+__\w+E|<__\w+>)",
            "torch's data_ptr has torch's types: reinterpret_cast<__half*>(x.data_ptr<at::Half>()), or at::BFloat16",
        ),
        (
            r"operand types are: [^\n]*\b(?:u?(?:char|short|int|long|longlong)|float|double)[234]\b",
            "CUDA has no operators for vector types: compute .x, .y, .z and .w each",
        ),
        (
            r'identifier "__(?:shfl\w*|ballot|any|all)" is undefined|"__(?:ballot|any|all)" was declared deprecated',
            "it needs a mask on this GPU: __shfl_down_sync(0xffffffff, value, offset), __ballot_sync, __any_sync",
        ),
        (
            r'namespace "cub" has no member "(?:Sum|Max|Min|Equality|Inequality)"',
            "CUDA 13 removed it: cuda::std::plus<>{} of <cuda/std/functional>, cuda::maximum<>{} and cuda::minimum<>{} "
            "of <cuda/functional>",
        ),
        (
            r"texture is not a template|identifier \"cuda(?:Unb|B)indTexture\w*\"",
            "CUDA 12 removed texture references: take a cudaTextureObject_t, or read through __ldg",
        ),
        (r'identifier "cudaThread\w+"', "CUDA removed it: call cudaDeviceSynchronize"),
        (r'"cudaDeviceProp" has no member', "CUDA 13 removed it: cudaDeviceGetAttribute gives the value"),
        (
            r"variable.length array|must have a constant value",
            "its size has to be known to the compiler: a constexpr, a template parameter, or `extern __shared__`",
        ),
        (
            r"declaration is incompatible with previous [^\n]*\n[^\n]*extern",
            "shared memory of one name has one type: declare `extern __shared__ unsigned char raw[]`, and cast it",
        ),
        (
            r"calling a __host__ function",
            "mark it __device__; of the standard library call what CUDA has, such as fmaxf or cuda::std",
        ),
        (
            r"Instruction '[\w.:]+' (?:not supported on|cannot be compiled for)|Feature '.*' not supported on \.target",
            "the architecture that it is built for lacks the instruction: without an option for the architecture the "
            "service builds for all of its GPU's; another GPU's (tcgen05, wgmma) have no replacement",
        ),
        (r"at::DeprecatedTypeProperties", "give x.scalar_type() in place of x.type()"),
        (
            r'"(?:AT_CHECK|AT_ASSERTM?|THCudaCheck|THArgCheck)"|\b(?:AT_CHECK|THCudaCheck)\W was not declared',
            "torch removed it: TORCH_CHECK(condition, text), C10_CUDA_CHECK(error)",
        ),
        (
            r"fatal error: THC?/",
            "torch has no THC any more: #include <ATen/cuda/CUDAContext.h> and <torch/extension.h>",
        ),
        (
            r"(?:multiple definition|redefinition) of .*(?:PyInit_|pybind11_init)",
            "`functions` writes a PYBIND11_MODULE: leave out `functions`, or the source's PYBIND11_MODULE",
        ),
        (
            r"uses too much shared data",
            "a block has 48 KiB of static shared memory: declare more as `extern __shared__`, and raise the kernel's "
            "limit with cudaFuncSetAttribute",
        ),
        (
            r"undefined reference to|undefined symbol: ",
            "it is declared and called, and none of the sources defines it: define it, or add its library to "
            "extra_ldflags",
        ),
        (r"multiple definition of", "define it in one of the sources, and only declare it in the others"),
        (r"fatal error: .*: No such file", "there is no such header here: put what it gives into the source"),
        (r"cannot find -l", "the worker lacks that library: do without it"),
    )
)


def hint_for(error: str, log: str) -> str | None:
    """Says what to do about a compiler's error, which `log` may explain in its next lines; None where not known."""
    text = error
    if _FOLLOWED.search(error):
        text += "".join(log.partition(error)[2].splitlines(keepends=True)[:3])
    return _missing_include(text) or next((hint for pattern, hint in _HINTS if pattern.search(text)), None)


def _missing_include(text: str) -> str | None:
    if (member := _STD_MEMBER.search(text)) is not None:
        return f"#include <{_OF_STD.get(member[1], member[1])}>"
    if _UNKNOWN_SPACE.search(text):
        header = next((header for header, space in _SPACES.items() if re.search(space, text)), None)
    else:
        undefined = _UNDEFINED.search(text)
        name = (undefined[1] or undefined[2]) if undefined else ""
        header = next((header for header, names in _NAMES.items() if name and re.fullmatch(names, name)), None)
    return f"#include <{header}>" if header else None
