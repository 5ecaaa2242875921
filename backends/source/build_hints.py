"""Says what the author of a source can do about a compiler's error, in texts of nvcc 13, g++ 12 and torch."""

from __future__ import annotations

import re

_HALF = r"\b(?:half2?|__half2?|__nv_bfloat162?)\b"
ARCHITECTURE = "without an option for the architecture, the service builds for its own GPU"

HALVES_OFF = (
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
    "ATen/cuda/CUDAContext.h": r"\b(?:at|c10)::cuda\b",
    "torch/extension.h": r"\b(?:torch|at|c10)::",
}
_OF_STD: dict[str, str] = {
    "algorithm": r"sort|stable_sort|min|max|clamp|fill|fill_n|copy|copy_n|transform|reverse|(?:all|any|none)_of",
    "cmath": r"sqrt|exp|log|log2|pow|abs|fabs|ceil|floor|round|tanh|isnan|isinf|fma",
    "cstdint": r"u?int(?:8|16|32|64)_t",
    "functional": r"function|plus|multiplies|minus|less|greater|hash",
    "iostream": r"cout|cerr|endl",
    "limits": r"numeric_limits",
    "memory": r"(?:unique|shared)_ptr|make_(?:unique|shared)",
    "mutex": r"mutex|lock_guard|unique_lock|call_once|once_flag",
    "numeric": r"accumulate|iota|partial_sum",
    "sstream": r"[io]?stringstream",
    "stdexcept": r"(?:runtime|logic|range)_error|invalid_argument|out_of_range",
    "string": r"string|to_string|stoi",
    "tuple": r"tuple|make_tuple|tie|get",
    "type_traits": r"(?:is_\w+|enable_if|conditional|decay|remove_\w+?|add_\w+?)(?:_t|_v)?",
    "utility": r"pair|make_pair|move|forward|swap|index_sequence|make_index_sequence",
    **dict.fromkeys(("array", "chrono", "map", "optional", "queue", "set", "thread", "unordered_map", "variant"), ""),
    "vector": "",
}
"""Names of the standard library by header. Every header gives that of its own name."""

_UNDEFINED = re.compile(r'(?:identifier|namespace "at::cuda" has no member) "(\w+)"|\W(\w+)\W was not declared in this')
_UNKNOWN_SPACE = re.compile(r"name must be a namespace name|name followed by \"::\" must be|has not been declared")
_STD_MEMBER = re.compile(r"""namespace "std" has no member "(\w+)"|\W(\w+)\W is not a member of .std\W""")
_FOLLOWED = re.compile(r"no operator|no instance of|more than one|name must be|name followed by|is incompatible with")
"""Errors that the lines after them explain: types, the line of the source, and a mark below its word at fault."""
_TYPES = re.compile(r"^ *(?:argument|operand) types are: .*$", re.MULTILINE)
_MARKED = re.compile(r"^(?P<before> *)(?P<line>\S.*)\n(?P<mark> *)\^$", re.MULTILINE)

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
            rf"more than one [^\n]*{_HALF}|more than one operator[^\n]*\n[^\n]*{_HALF}",
            "name the conversion: __half2float(x) or __float2half(x)",
        ),
        (
            rf'no suitable \w+(?: function)? exists to convert .*"[^"]*{_HALF}'
            rf"|no operator [^\n]*\n *operand types are: [^\n]*{_HALF}"
            rf'|"(?:nvcuda::wmma::fill_fragment|__half::__half|__nv_bfloat16::\w+)" matches[^\n]*\n[^\n]*{_HALF}'
            r'|"(?:__half::__half|__nv_bfloat16::\w+)" matches',
            HALVES_OFF,
        ),
        (
            r'"atomic\w+" matches[^\n]*\n[^\n]*: \(const ',
            "its pointer is to const: take one that the kernel may write to",
        ),
        (
            r'"atomic(?:Max|Min)" matches[^\n]*\n[^\n]*(?:float|double|half)',
            "CUDA has it for integers only: loop over atomicCAS, or reduce in the block first",
        ),
        (
            r'"atomic(?:Max|Min)" matches',
            "pointer and value have to be of one type: int, unsigned, long long, unsigned long long; cast both, "
            "int64_t to long long",
        ),
        (
            r'"atomic(?:CAS|Exch)" matches',
            "pass the bits: a pointer cast to int*, unsigned* or unsigned long long*, and values by __float_as_int or "
            "__double_as_longlong",
        ),
        (r'"atomicSub" matches', "CUDA has it for int and unsigned only: add the negated value by atomicAdd"),
        (
            r'"atomicAdd" matches',
            "pointer and value have to be of one type: int, unsigned, unsigned long long, float, double, __half, "
            "__nv_bfloat16; cast both, int64_t to unsigned long long, at::Half to __half",
        ),
        (
            rf'(?:no|more than one) instance of overloaded function "[\w:]+" matches[^\n]*\n[^\n]*{_HALF}',
            "half types have functions of their own, such as __hmax and hexp: call these, or convert with __half2float",
        ),
        (
            r'(?:no|more than one) instance of [^\n]*"(?:std::)?(?:max|min|pow)" matches',
            "give both arguments the same type, for example 1.0f beside a float",
        ),
        (
            r"(?:c10|at)::(?:Half|BFloat16) \*[^\n]*incompatible|undefined [^\n]*data_ptr[I<]",
            "data_ptr has torch's types, such as float, int64_t, at::Half, at::BFloat16: "
            "reinterpret_cast<__half*>(x.data_ptr<at::Half>())",
        ),
        (
            r"operand types are: [^\n]*\b(?:u?(?:char|short|int|long|longlong)|float|double)[234]\b",
            "CUDA has no operators for vector types: compute .x, .y, .z and .w each",
        ),
        (
            r'identifier "__(?:shfl(?:_up|_down|_xor)?|ballot|any|all)" is undefined'
            r'|"__(?:ballot|any|all)" was declared deprecated',
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
        (r'identifier "cudaThreadSynchronize"', "CUDA removed it: call cudaDeviceSynchronize"),
        (
            r'"cudaDeviceProp" has no member "(?:clockRate|memoryClockRate|computeMode|deviceOverlap|'
            r'kernelExecTimeoutEnabled|singleToDoublePrecisionPerfRatio|cooperativeMultiDeviceLaunch|maxTexture1DLinear)"',
            "CUDA 13 removed it: cudaDeviceGetAttribute gives the value",
        ),
        (
            r"variable.length array|expression must have a constant value",
            "the compiler has to know it: make it a constexpr or a template parameter; shared memory whose size the "
            "launch gives is `extern __shared__`",
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
        (r'namespace "(?:at|c10)" has no member "cuda"', "#include <ATen/cuda/CUDAContext.h>"),
        (
            r"undefined symbol: _ZT?\w?N?K?(?:2at|3c10|5torch)\d",
            "torch's libraries lack a function of that name and these types: call another",
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
    text, marked = error, ""
    if _FOLLOWED.search(error):
        paragraph = log.partition(error)[2].partition("\n\n")[0]
        types = _TYPES.search(paragraph)
        text = "\n".join([error, *([types[0]] if types else []), *paragraph.splitlines()[1:3]])
        marked = _marked(paragraph)
    return _missing_include(text, marked) or next((hint for pattern, hint in _HINTS if pattern.search(text)), None)


def _marked(paragraph: str) -> str:
    """The line of the source from the word on that the compiler marks as wrong; empty where it marks none."""
    match = _MARKED.search(paragraph)
    return match["line"][max(len(match["mark"]) - len(match["before"]), 0) :] if match else ""


def _missing_include(text: str, marked: str) -> str | None:
    if (member := _STD_MEMBER.search(text)) is not None:
        name = member[1] or member[2]
        header = next((header for header, names in _OF_STD.items() if re.fullmatch(rf"{header}|{names}", name)), None)
    elif _UNKNOWN_SPACE.search(text):
        spaces = _SPACES.items()
        find = re.match if marked else re.search
        header = next((header for header, space in spaces if find(space, marked or text)), None)
    else:
        undefined = _UNDEFINED.search(text)
        name = (undefined[1] or undefined[2]) if undefined else ""
        header = next((header for header, names in _NAMES.items() if name and re.fullmatch(names, name)), None)
    return f"#include <{header}>" if header else None
