"""Kernel type `cuda` where there is no GPU: real compilations, the parameters they tell, and their faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.base import Artifact, Target
from backends.cuda.argument_packing import pack_word
from backends.cuda.backend import PLAN
from backends.cuda.launch_geometry import default_shared_bytes, geometry
from backends.cuda.signature import Parameter
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.result import Status
from tests.backends.contracts import constant, contract, scalar, tensor
from tests.backends.loading import built, kernel, refusal

IO = contract(tensor("x", 64), tensor("y", 64, role="output"), scalar("s", 2.5), scalar("n", 64))
BODY = "{ int i = threadIdx.x; if (i < n) y[i] = x[i] * s; }"
SCALE = f"__global__ void scale(const float* x, float* y, float s, int n) {BODY}"


def built_cuda(source: str, folder: Path, io: dict[str, Any] = IO, **metadata: Any) -> Artifact:
    return built(kernel(source, "cuda", io, **metadata), folder)


def fault_of(source: str, folder: Path, io: dict[str, Any] | None = IO, **metadata: Any) -> KernelFault:
    return refusal(kernel(source, "cuda", io, **metadata), folder)


def test_builds_and_is_not_run(tmp_path: Path) -> None:
    facts = built_cuda(SCALE, tmp_path).facts
    assert facts["parameters"] == "(const float*, float*, float, int)"
    assert facts["kernel"] == "scale" and facts["arch"] == "sm_90a" and facts["registers"] > 0
    assert "this worker has no GPU: compiled for sm_90a, not run" in facts["notes"]
    assert facts["spill_store_bytes"] == facts["local_bytes"] == facts["static_shared_bytes"] == 0
    assert facts["occupancy"]["theoretical"] == 1.0 and facts["occupancy"]["threads_per_block"] == 256
    assert (tmp_path / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
    fault = fault_of(SCALE, tmp_path)
    assert fault.status is Status.UNSUPPORTED and fault.compiled and "no GPU" in fault.message
    assert "compiled for sm_90a, and not run" in fault.message


FILTERED = """
__constant__ float taps[2 * 4 + 1];
static __constant__ int shift;
namespace ns { __constant__ float inner[3]; }
__global__ void filtered(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) for (int k = 0; k < 9; ++k) y[i] += taps[k] * x[(i + k + shift) % n] + ns::inner[k % 3];
}
"""


def test_constants_are_no_parameters(tmp_path: Path) -> None:
    args = constant("taps", 5), tensor("x", 64), constant("shift", dtype="int32"), tensor("y", 64, role="output")
    facts = built_cuda(FILTERED, tmp_path, contract(*args, scalar("n", 64))).facts
    assert facts["parameters"] == "(const float*, float*, int)"
    assert not any("taps" in note for note in facts["notes"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (constant("tap", 9), "no __constant__ variable 'tap' outside of namespaces; it has taps, shift"),
        (constant("inner", 3), "no __constant__ variable 'inner' outside of namespaces"),
        (constant("taps", 10), "'taps' has 40 bytes; the __constant__ variable has 36"),
        (constant("shift", 1, dtype="int64"), "'shift' has 8 bytes; the __constant__ variable has 4"),
    ],
)
def test_constants_fit_a_variable_of_the_source(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    io = contract(tensor("x", 64), tensor("y", 64, role="output"), scalar("n", 64), given)
    fault = fault_of(FILTERED, tmp_path, io)
    assert fault.status is Status.CONTRACT_MISMATCH and fault.compiled and says in fault.message


def test_shared_memory_of_the_launch_counts_against_occupancy(tmp_path: Path) -> None:
    source = SCALE.replace(BODY, "{ extern __shared__ float s_[]; s_[threadIdx.x] = x[threadIdx.x]; y[0] = s_[n]; }")
    io = contract(*IO["args"], block=[128], shared_mem="n * 1024")
    found = built_cuda(source, tmp_path, io).facts["occupancy"]
    assert (found["limited_by"], found["blocks_per_multiprocessor"]) == ("shared_memory", 3)
    assert (found["shared_bytes"], found["theoretical"]) == (64 * 1024, 3 * 4 / 64)


@pytest.mark.parametrize(("arch", "code"), [("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_100", "sm_100a")])
def test_the_architecture_is_the_workers(tmp_path: Path, arch: str, code: str) -> None:
    assert built(kernel(SCALE, "cuda", IO), tmp_path, Target("cuda", arch)).facts["arch"] == code


def test_an_architecture_that_the_compiler_lacks(tmp_path: Path) -> None:
    assert refusal(kernel(SCALE, "cuda", IO), tmp_path, Target("cuda", "sm_30")).status is Status.UNSUPPORTED


TYPES = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cstdint>
#define T float
#define size 4
#define value 5
typedef float real; struct Incomplete; struct S { int a[5]; }; enum E { A }; enum class F : unsigned char { B };
namespace ns {
template <class Q> __global__ void k(
    const Q* a, Q* __restrict__ b, const int c, unsigned long d, E e, F f, __half g, __nv_bfloat16 h, __nv_fp8_e4m3 i,
    __nv_fp8_e5m2 j, real k, double l, bool m, char n, unsigned char o, int64_t p, S q, Incomplete* r, const void* s,
    float4* t, int** u, size_t v, void (*w)(int)) {}
}
"""
SPELT = (
    "(const float*, float*, int, unsigned long long, int, unsigned char, __half, __nv_bfloat16, __nv_fp8_e4m3, "
    "__nv_fp8_e5m2, float, double, bool, char, unsigned char, long long, struct of 20 bytes, struct*, const void*, "
    "struct of 16 bytes*, ?**, unsigned long long, struct*)"
)


@pytest.mark.parametrize("standard", ["11", "14", "17", "20"])
def test_the_compiler_tells_every_type(tmp_path: Path, standard: str) -> None:
    fault = fault_of(TYPES, tmp_path, contract(), kernel_name="k<float>", compiler_options=[f"-std=c++{standard}"])
    assert fault.status is Status.CONTRACT_MISMATCH and fault.compiled
    assert f"ns::k<float>{SPELT} takes 23 arguments" in fault.message


CHOSEN = [
    (f"__global__ void other() {{}} {SCALE}", {"kernel_name": "scale"}, "scale"),
    (f'extern "C" {SCALE}', {}, "scale"),
    (f"namespace a {{ static {SCALE} }}", {"kernel_name": "a::scale"}, "a::scale"),
    (f"namespace {{ {SCALE} }}", {}, "scale"),
    (
        f"template <class T> __global__ void __launch_bounds__(128) t(const T* x, T* y, T s, int n) {BODY}",
        {"kernel_name": "t<float>"}, "t<float>",
    ),
    (
        f"template <class T> __global__ void t(const T* x, T* y, T s, int n) {BODY}",
        {"name_expressions": ["t<float>"], "kernel_name": "t"}, "t<float>",
    ),
    (f"template <int N = 2> __global__ void t(const float* x, float* y, float s, int n) {BODY}", {}, "t<>"),
    (f"#define K(name) __global__ void name(const float* x, float* y, float s, int n) {BODY}\nK(foo)",
     {"kernel_name": "foo"}, "foo"),
    (f"{SCALE} __global__ void scale(float* x) {{}}", {"kernel_name": "_Z5scalePKfPffi"}, "_Z5scalePKfPffi"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "metadata", "name"), CHOSEN)
def test_chooses_the_kernel(tmp_path: Path, source: str, metadata: dict[str, Any], name: str) -> None:
    assert built_cuda(source, tmp_path, **metadata).facts["kernel"] == name


@pytest.mark.parametrize(
    ("source", "metadata", "says"),
    [
        (SCALE, {"kernel_name": "nope"}, "Kernel 'nope' not found. The source has: scale."),
        ("", {}, "no __global__ function"),
        (f"{SCALE} __global__ void scale(float* x) {{}}", {}, "overloaded"),
        ("template <class T> __global__ void t(T* x) {}", {}, "t<float>"),
        (SCALE, {"compiler_options": ["-I/etc"]}, "-I/etc"),
        ("template <int N, class T> __global__ void t(T* x) {}", {}, "t<128, float>"),
        (f"#include <nowhere.h>\n{SCALE}", {}, "no header <nowhere.h> for device code here. Remove its #include"),
        (
            f"#include <torch/extension.h>\n{SCALE}",
            {},
            "<torch/extension.h> is a header of torch: send the file with kernel_type torch_cuda",
        ),
        (f"{SCALE} int main() {{ scale<<<1, 1>>>(0, 0, 0, 0); }}", {}, 'declare one extern "C"'),
    ],
)
def test_compile_errors_say_what_to_do(tmp_path: Path, source: str, metadata: dict[str, Any], says: str) -> None:
    fault = fault_of(source, tmp_path, **metadata)
    assert fault.status is Status.COMPILE_ERROR and not fault.compiled and says in fault.message


def test_the_log_is_whole_and_has_the_sources_lines(tmp_path: Path) -> None:
    fault = fault_of(f"\n\n{SCALE.replace('x[i] * s', 'nope + neither')}", tmp_path)
    assert 'kernel.cu(3): error: identifier "nope" is undefined' in fault.log
    assert fault.message == 'the source does not compile: kernel.cu(3): error: identifier "nope" is undefined'
    assert '"neither"' in fault.log and "2 errors" in fault.log and "__ke_" not in fault.log


def test_a_warning_that_names_an_error_is_not_the_first_one(tmp_path: Path) -> None:
    fault = fault_of(f"__device__ void f() {{ int error; }}\n{SCALE.replace('x[i] * s', 'nope')}", tmp_path)
    assert "int error" in fault.log
    assert fault.message == 'the source does not compile: kernel.cu(2): error: identifier "nope" is undefined'


@pytest.mark.parametrize(
    "extra",
    [
        "cuda_runtime.h", "cuda.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cooperative_groups.h", "mma.h",
        "cuda/std/cstdint", "cub/cub.cuh", "device_launch_parameters.h", "math.h", "cmath", "stdio.h", "iostream",
        "cfloat", "climits", "algorithm", "limits", "stdint.h", "cstdlib", "string.h", "cuComplex.h", "assert.h",
        "cublas_v2.h", "helper_cuda.h",
    ],
)  # fmt: skip
def test_usual_headers(tmp_path: Path, extra: str) -> None:
    built = built_cuda(f"#include <{extra}>\n{SCALE}", tmp_path)
    assert built.facts["parameters"] == "(const float*, float*, float, int)"


def test_what_nvcc_makes_visible(tmp_path: Path) -> None:
    body = (
        "{ uint32_t i = threadIdx.x; y[i] = std::max(x[i], -INFINITY) + std::sqrt(s) + NAN + FLT_MAX + float(M_PI)"
        ' + std::min(n, INT_MAX) + fminf(s, 1.f); assert(n); printf("%d", n); }'
    )
    source = f"#include <algorithm>\n#include <cmath>\n{SCALE.replace(BODY, body)}"
    assert built_cuda(source, tmp_path).log == ""
    own = "typedef unsigned int uint;\n__device__ ushort half(uint i) { return ulong(i) / 2; }\n"
    built_cuda(own + SCALE.replace(BODY, "{ uint i = threadIdx.x; y[half(i)] = x[i] * s; }"), tmp_path)
    built_cuda(f"typedef long int64_t;\nint helper(int a) {{ return a; }}\n{SCALE}", tmp_path)


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_errors(tmp_path: Path) -> None:
    assert built_cuda("\ufeff" + SCALE.replace("\n", "\r\n"), tmp_path).facts["kernel"] == "scale"


def test_warnings_are_kept(tmp_path: Path) -> None:
    assert "never referenced" in built_cuda(SCALE.replace("{ int", "{ int unused; int"), tmp_path).log


def test_the_contract_is_held_against_the_parameters(tmp_path: Path) -> None:
    args = IO["args"]
    fault = fault_of(SCALE, tmp_path, contract(*args[:2]))
    assert fault.status is Status.CONTRACT_MISMATCH
    assert "scale(const float*, float*, float, int) takes 4 arguments and the contract gives 2 (x, y)" in fault.message
    fault = fault_of(SCALE, tmp_path, contract(*args[:3], tensor("n", 1)))
    assert fault.status is Status.CONTRACT_MISMATCH and "argument 3 'n' is a tensor" in fault.message
    pair = f"struct Pair {{ float s; int n; }};\n{SCALE.replace('float s, int n', 'Pair p').replace(BODY, '{}')}"
    for count in (3, 4):
        fault = fault_of(pair, tmp_path, contract(*args[:count]))
        assert fault.status is Status.CONTRACT_MISMATCH and "A contract cannot give a struct" in fault.message
    fault = fault_of(SCALE, tmp_path, contract(*args[:3], {"name": "n", "type": "none"}))
    assert fault.status is Status.CONTRACT_MISMATCH and "argument 3 'n' is a none where" in fault.message
    built_cuda(SCALE, tmp_path, contract({"name": "x", "type": "none"}, *args[1:]))
    fault = fault_of(SCALE, tmp_path, None)
    assert fault.status is Status.CONTRACT_MISMATCH and "IO contract" in fault.message
    fault = fault_of(SCALE, tmp_path, contract(*args[:3], scalar("n", 2**31)))
    assert fault.status is Status.RUNTIME_ERROR and "2147483648 does not fit" in fault.message
    notes = built_cuda(SCALE, tmp_path, contract(tensor("x", 64, dtype="float64"), *args[1:])).facts["notes"]
    assert any("float64" in note for note in notes)


TABLE = "__device__ unsigned __ke_signature[6] = {0x4b45u, 0x1070u, 0x1070u, 0x966u, 0x866u, 0x4b45u};"
HIDDEN_STRUCT = "struct Big { char bytes[4000]; };\n" + SCALE.replace("float s, int n", "Big host").replace(BODY, "{}")
LIES = [
    pytest.param(f"{HIDDEN_STRUCT}\n{TABLE}\n#define __ke_signature __other", {}, id="another table"),
    pytest.param(
        f"__device__ int number;\n__device__ constexpr int __ke_describe(int*) {{ return 0; }}\n{TABLE}\n"
        + f"{SCALE}\n#define __ke_signature __other\n#define decltype(x) int*",
        {"kernel_name": "&number"},
        id="a variable",
    ),
    pytest.param(
        '__global__ void early() { asm("// .entry _Z5scalePKfPf3Big(.param .u64 a, .param .u64 b)\\n"); }\n'
        + HIDDEN_STRUCT + " __global__ void scale() {}",
        {"kernel_name": "_Z5scalePKfPf3Big"},
        id="a comment in assembler text",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "metadata"), LIES)
def test_a_source_cannot_have_a_launch_read_other_bytes_than_its_parameters(
    tmp_path: Path, source: str, metadata: dict[str, Any]
) -> None:
    fault = fault_of(source, tmp_path, contract(*IO["args"][:2]), **metadata)
    assert fault.status is Status.COMPILE_ERROR and "the machine code has no kernel" in fault.message


def test_a_parameter_that_is_longer_than_its_place_is_refused_where_its_type_is_unknown(tmp_path: Path) -> None:
    overloaded = HIDDEN_STRUCT + " __global__ void scale() {}"
    fault = fault_of(overloaded, tmp_path, contract(*IO["args"][:3]), kernel_name="_Z5scalePKfPf3Big")
    assert fault.status is Status.CONTRACT_MISMATCH and "A contract cannot give a struct" in fault.message


WORDS = [
    ("float", 4, 2.5, 0x40200000),
    ("float", 4, 3, 0x40400000),
    ("double", 8, 2.5, 0x4004000000000000),
    ("int", 4, -1, 0xFFFFFFFF),
    ("int", 8, -1, 0xFFFFFFFFFFFFFFFF),
    ("int", 2, 7.0, 7),
    ("uint", 8, 2**64 - 1, 2**64 - 1),
    ("bool", 1, 5, 1),
    ("half", 2, 1.5, 0x3E00),
    ("bfloat16", 2, -1.5, 0xBFC0),
    ("float8_e4m3fn", 1, 1.0, 0x38),
    ("float8_e5m2", 1, 1.0, 0x3C),
    ("float", 4, float("inf"), 0x7F800000),
    ("word", 4, -2, 0xFFFFFFFE),
    ("word", 8, 2.5, 0x4004000000000000),
]


@pytest.mark.parametrize(("kind", "size", "value", "bits"), WORDS)
def test_scalars_at_their_type(kind: str, size: int, value: float, bits: int) -> None:
    assert pack_word(Parameter(kind.replace("double", "float"), size), value, "a") == bits


@pytest.mark.parametrize(
    ("kind", "size", "value"),
    [
        ("int", 4, 2**31),
        ("uint", 4, -1),
        ("int", 4, 2.5),
        ("float", 4, 1e300),
        ("half", 2, 1e5),
        ("int", 4, float("nan")),
    ],
)
def test_scalars_that_do_not_fit(kind: str, size: int, value: float) -> None:
    with pytest.raises(KernelFault, match="does not fit") as caught:
        pack_word(Parameter(kind, size), value, "a")
    assert caught.value.status is Status.RUNTIME_ERROR


def test_geometry() -> None:
    def of(uses_dynamic_shared: bool = False, **launch: Any) -> tuple[Any, ...]:
        io = IOContract.from_wire(contract(scalar("n", 1000), **launch))
        sizes = geometry(io, io.scalars(), uses_dynamic_shared)
        return sizes.grid, sizes.block, sizes.shared

    assert of() == ((1, 1, 1), (256, 1, 1), 0)
    assert of(grid=["cdiv(n, 32)", 2], block={"x": 16, "y": 16}) == ((32, 2, 1), (16, 16, 1), 0)
    assert of(True) == ((1, 1, 1), (256, 1, 1), default_shared_bytes(256)) and default_shared_bytes(256) >= 256 * 4
    assert of(True, shared_mem="n * 4")[2] == 4000
    with pytest.raises(KernelFault, match="no scalar argument"):
        of(grid="m")
    with pytest.raises(KernelFault, match="at least 1"):
        of(grid="n - 1000")


def test_dynamic_shared_memory_is_seen(tmp_path: Path) -> None:
    source = SCALE.replace(
        "{ int i", "{ extern __shared__ float s_[]; s_[threadIdx.x] = s; __syncthreads(); int i"
    ).replace("x[i] * s", "x[i] * s_[n - threadIdx.x]")
    assert any("shared_mem" in note for note in built_cuda(source, tmp_path).facts["notes"])
    given = contract(*IO["args"], shared_mem=1024)
    assert not any("shared_mem" in note for note in built_cuda(source, tmp_path, given).facts["notes"])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            SCALE + "\nvoid launch(float* x) { }\nvoid go() { launch(0); scale<<<1, 1>>>(0, 0, 0, 0); }",
            "host code (line 2: `void launch(float* x) { }`)",
        ),
        (
            f"{SCALE}\n#line 999\nvoid launch() {{ scale<<<1, 1>>>(0, 0, 0, 0); }}",
            "it holds host code. Send the __global__ function alone, or name the host function that launches it in "
            "metadata.entry_point (the source has launch)",
        ),
        (f"```cuda\n{SCALE}\n```", "send the code between them"),
        (f"import torch\nsource = '''{SCALE}'''", "it holds host code (line 1: `import torch`)"),
        (SCALE.replace("{ int", '{ asm("nonsense;"); int'), "Not a name of any known instruction"),
    ],
)
def test_a_source_that_is_no_kernel_says_what_to_send(source: str, says: str, tmp_path: Path) -> None:
    assert says in fault_of(source, tmp_path).message


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("", False),
        ("if (n < 0) y = (float*)malloc(8);", True),
        ('printf("%d", n);', True),
        ("assert(n > 0);", True),
        ("extern __shared__ float dynamic[]; dynamic[0] = s;", False),
        ('asm(".extern /* */ .func (.reg .b32 r) vprintf (.reg .b64 a, .reg .b64 b);");', True),
        ('asm(".extern .func (.reg .b32 r) vprintf (.reg .b64 a, .reg .b64 b);");', True),
    ],
)
def test_a_build_tells_functions_of_the_driver_whose_memory_outlives_the_kernel(
    tmp_path: Path, statement: str, found: bool
) -> None:
    built_cuda("#include <cassert>\n" + SCALE.replace(BODY, "{ " + statement + BODY + " }"), tmp_path)
    assert json.loads((tmp_path / PLAN).read_text())["device_runtime"] is found
