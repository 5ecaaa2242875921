"""Replacements for host headers that NVRTC lacks.

A source written for nvcc usually includes `<math.h>` or `<iostream>`. NVRTC has the mathematics built in and never
reads the host's headers. Each of these names maps to a small text here, with the parts that device code can use.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("nvrtc_headers")
"""The replacements that are more than a line, under their names."""
PRELUDE = "cuda_prelude.h"
"""A header that precedes every source: nvcc includes its contents implicitly."""

_MATH_FUNCTIONS = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor "
    "fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma llrint llround log log10 log1p log2 logb "
    "lrint lround modf nearbyint nextafter pow remainder remquo rint round scalbn signbit sin sinh sqrt tan tanh "
    "tgamma trunc sqrtf expf logf powf sinf cosf tanf tanhf fabsf fmaxf fminf floorf ceilf roundf truncf fmodf fmaf "
    "erff"
)

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
        "cstdint": "#include <stdint.h>\n", "climits": "#include <limits.h>\n", "cfloat": "#include <float.h>\n",
        "cmath": "#pragma once\n" + _math_in_std(), "stddef.h": sizes, "cstddef": sizes,
        "string.h": strings, "cstring": strings,
        "stdio.h": "#pragma once\n", "cstdio": "#pragma once\nnamespace std { using ::printf; }\n",
        "stdbool.h": "#pragma once\n",
        PRELUDE: "".join(f"#include <{name}>\n" for name in _EVERYWHERE),
    }  # fmt: skip
    files = (path for path in FOLDER.rglob("*") if path.is_file())
    return texts | {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in files}


def defines_integer_types(code: str) -> bool:
    """Whether the source defines its own `int64_t` and the like, which may be `long` where ours are `long long`."""
    return _OWN_INTEGER.search(code) is not None
