"""Replacements for host headers that NVRTC lacks.

A source written for nvcc usually includes `<math.h>` or `<iostream>`. NVRTC has the mathematics built in and never
reads the host's headers. Each of these names maps to a small text here, with the parts that device code can use.
"""

from __future__ import annotations

import re
from functools import cache

PRELUDE = "cuda_prelude.h"
"""A header that precedes every source: nvcc includes its contents implicitly."""

_STDINT = """#pragma once
#ifndef __KE_OWN_INTEGERS
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t; typedef unsigned long long uintptr_t;
typedef long long intmax_t; typedef unsigned long long uintmax_t;
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::intptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uintptr_t;
}
#endif
#ifndef INT8_MIN
#define INT8_MIN SCHAR_MIN
#define INT16_MIN SHRT_MIN
#define INT32_MIN INT_MIN
#define INT64_MIN LLONG_MIN
#define INT8_MAX SCHAR_MAX
#define INT16_MAX SHRT_MAX
#define INT32_MAX INT_MAX
#define INT64_MAX LLONG_MAX
#define UINT8_MAX UCHAR_MAX
#define UINT16_MAX USHRT_MAX
#define UINT32_MAX UINT_MAX
#define UINT64_MAX ULLONG_MAX
#endif
"""

# Copied token for token from libcu++, so that including both is no redefinition.
_LIMITS = """#pragma once
#ifndef CHAR_BIT
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-SHRT_MAX - 1)
#define SHRT_MAX 0x7fff
#define USHRT_MAX 0xffff
#define INT_MIN (-INT_MAX - 1)
#define INT_MAX 0x7fffffff
#define UINT_MAX 0xffffffff
#define LONG_MIN (-LONG_MAX - 1)
#define LONG_MAX LLONG_MAX
#define ULONG_MAX ULLONG_MAX
#define LLONG_MIN (-LLONG_MAX - 1)
#define LLONG_MAX 0x7fffffffffffffffLL
#define ULLONG_MAX 0xffffffffffffffffUL
#endif
"""

# The contents of <sys/types.h>, which nvcc includes implicitly.
_TYPES = """#pragma once
typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong; typedef long ssize_t;
"""

_FLOAT = """#pragma once
#ifndef FLT_MAX
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MAX_10_EXP 38
#define FLT_MAX 3.402823466e+38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_MIN 1.175494351e-38f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_MIN 2.2250738585072014e-308
#endif
"""

_MATH = """#pragma once
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#ifndef INFINITY
#define INFINITY (__builtin_bit_cast(float, 0x7f800000))
#define NAN (__builtin_bit_cast(float, 0x7fffffff))
#define HUGE_VALF INFINITY
#define HUGE_VAL (__builtin_bit_cast(double, 0x7ff0000000000000))
#endif
"""

_MATH_FUNCTIONS = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor "
    "fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma llrint llround log log10 log1p log2 logb "
    "lrint lround modf nearbyint nextafter pow remainder remquo rint round scalbn signbit sin sinh sqrt tan tanh "
    "tgamma trunc sqrtf expf logf powf sinf cosf tanf tanhf fabsf fmaxf fminf floorf ceilf roundf truncf fmodf fmaf "
    "erff"
)

_ALGORITHM = """#pragma once
namespace std {
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& clamp(const T& x, const T& low, const T& high)
{ return x < low ? low : high < x ? high : x; }
template <class T> __host__ __device__ inline void swap(T& a, T& b) { T c = a; a = b; b = c; }
}
"""

# CUB as a whole contains host code; these are its parts for device code.
_CUB = "#pragma once\n" + "".join(
    f"#include <cub/{part}.cuh>\n"
    for part in (
        "block/block_load", "block/block_store", "block/block_exchange", "block/block_reduce", "block/block_scan",
        "block/block_radix_sort", "warp/warp_reduce", "warp/warp_scan",
    )
)  # fmt: skip

_HOST_ONLY = (
    "iostream fstream sstream iomanip ostream istream string vector map set unordered_map list deque queue memory "
    "random chrono thread mutex stdexcept exception string_view filesystem time.h ctime stdlib.h cstdlib assert.h "
    "cassert locale.h errno.h unistd.h sys/time.h sys/stat.h inttypes.h cinttypes getopt.h signal.h omp.h "
    "regex future condition_variable typeinfo bits/stdc++.h cuda_profiler_api.h nvToolsExt.h nvtx3/nvToolsExt.h "
    "cublas.h cublas_v2.h cublasLt.h cudnn.h cufft.h cusolverDn.h cusparse.h nccl.h "
    "helper_cuda.h helper_functions.h helper_string.h helper_timer.h"
)
"""The last lines are libraries that the host calls, and headers of CUDA's samples."""

_FROM_CUDA_STD = (
    "limits type_traits utility tuple array functional numeric complex bit optional span iterator ratio concepts "
    "atomic variant initializer_list"
)
_EVERYWHERE = ("limits.h", "stdint.h", "float.h", "math.h", "stddef.h", "sys/types.h")
_OWN_INTEGER = re.compile(r"\b(?:typedef\b[^;{}]*\bu?int(?:8|16|32|64)_t\s*;|using\s+u?int(?:8|16|32|64)_t\s*=)")


def _math_in_std() -> str:
    return "\n".join(["#include <math.h>", "namespace std {", *(f"using ::{f};" for f in _MATH_FUNCTIONS.split()), "}"])


@cache
def stand_ins() -> dict[str, str]:
    """Replacement texts by the name of the header that NVRTC lacks."""
    texts = dict.fromkeys(_HOST_ONLY.split(), "#pragma once\n")
    for name in _FROM_CUDA_STD.split():
        texts[name] = f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
    sizes = "#pragma once\nnamespace std { typedef decltype(sizeof(0)) size_t; typedef long ptrdiff_t; }\n"
    strings = "#pragma once\nnamespace std { using ::memcpy; using ::memset; }\n"
    texts |= {
        "stdint.h": _STDINT, "cstdint": "#include <stdint.h>\n",
        "limits.h": _LIMITS, "climits": "#include <limits.h>\n",
        "float.h": _FLOAT, "cfloat": "#include <float.h>\n",
        "math.h": _MATH, "cmath": "#pragma once\n" + _math_in_std(),
        "sys/types.h": _TYPES, "stddef.h": sizes, "cstddef": sizes,
        "string.h": strings, "cstring": strings,
        "stdio.h": "#pragma once\n", "cstdio": "#pragma once\nnamespace std { using ::printf; }\n",
        "stdbool.h": "#pragma once\n", "algorithm": _ALGORITHM,
        "cub/cub.cuh": _CUB,
        PRELUDE: "".join(f"#include <{name}>\n" for name in _EVERYWHERE),
    }  # fmt: skip
    return texts


def defines_integer_types(code: str) -> bool:
    """Whether the source defines its own `int64_t` and the like, which may be `long` where ours are `long long`."""
    return _OWN_INTEGER.search(code) is not None
