"""Kernel type `cuda` on a GPU: every way of writing a kernel gives the right numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda.bindings import driver

from backends.base import Target
from backends.cuda.backend import CUBIN, PLAN
from backends.cuda.launch import checked, function_of, load_module
from domain.fault import KernelFault
from domain.result import Status
from tests.backends.contracts import constant, contract, scalar, tensor, values
from tests.backends.loading import built, kernel, loaded, refusal

pytestmark = pytest.mark.gpu

IN, OUT = tensor("x", 1000), tensor("y", 1000, role="output")
BODY = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * s; }"
SCALE = f"__global__ void scale(const float* x, float* y, float s, int n) {BODY}"
IO = contract(IN, OUT, scalar("s", 2.5), scalar("n", 1000), grid="cdiv(n, 256)")


def here() -> Target:
    major, minor = torch.cuda.get_device_capability()
    return Target("cuda", f"sm_{major}{minor}")


def run(source: str, folder: Path, io: dict[str, Any] = IO, **metadata: Any) -> list[Any]:
    """The arguments after one call."""
    given = kernel(source, "cuda", io, **metadata)
    executable = loaded(given, folder, here())
    args = values(given.io, "cuda")
    assert executable.call(args) is None
    torch.cuda.synchronize()
    return args


@pytest.mark.parametrize(
    ("source", "metadata"),
    [
        (SCALE, {}),
        (f'extern "C" {SCALE}', {"kernel_name": "scale"}),
        (f'extern "C" {{ {SCALE} __global__ void other(int* p) {{ *p = 1; }} }}', {}),
        (f"namespace a {{ namespace b {{ {SCALE} }} }}", {"kernel_name": "a::b::scale"}),
        (f"namespace {{ {SCALE} }}", {}),
        (f"template <class T, int N> __global__ void __launch_bounds__(256) t(const T* x, T* y, T s, int n) {BODY}",
         {"kernel_name": "t<float, 4>"}),
        (f"#include <cmath>\n#include <stdio.h>\n{SCALE}", {"compiler_options": ["-O3", "--use_fast_math"]}),
        (f"{SCALE} __global__ void scale(float* x) {{}}", {"kernel_name": "_Z5scalePKfPffi"}),
    ],
)  # fmt: skip
def test_scale(tmp_path: Path, source: str, metadata: dict[str, Any]) -> None:
    x, y, *_ = run(source, tmp_path, **metadata)
    torch.testing.assert_close(y, x * 2.5)


@pytest.mark.parametrize(
    ("declared", "value"),
    [("double", 2.5), ("int", -3), ("long long", -(2**40)), ("unsigned char", 200), ("bool", True), ("short", -7),
     ("__half", 2.5), ("__nv_bfloat16", 2.5), ("size_t", 2**40)],
)  # fmt: skip
def test_scalars_arrive_at_their_type(tmp_path: Path, declared: str, value: float) -> None:
    source = f"""
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void k(char pad, {declared} s, double* y, float after) {{ y[0] = (double)s; y[1] = after; }}
    """.replace("(double)s", "(double)(float)s" if declared.startswith("__") else "(double)s")
    io = contract(
        scalar("pad", 1), scalar("s", value), tensor("y", 2, dtype="float64", role="output"), scalar("a", 0.5)
    )
    assert run(source, tmp_path, io)[2].tolist() == [float(value), 0.5]


@pytest.mark.parametrize(("dtype", "declared"), [("float16", "__half"), ("bfloat16", "__nv_bfloat16")])
def test_small_floats(tmp_path: Path, dtype: str, declared: str) -> None:
    source = f"""
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void k(const {declared}* x, {declared}* y, {declared} s) {{ y[threadIdx.x] = x[threadIdx.x] * s; }}
    """
    io = contract(tensor("x", 64, dtype=dtype), tensor("y", 64, dtype=dtype, role="output"), scalar("s", 0.5), block=64)
    x, y, _ = run(source, tmp_path, io)
    assert torch.equal(y, x * 0.5)


CONVOLUTION = """
__constant__ float taps[9];
static __constant__ float bias;
__global__ void convolve(const float* x, float* y, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = bias;
    for (int k = 0; k < width; ++k) if (i + k < n) y[i] += taps[k] * x[i + k];
}
"""


def test_constants_are_filled_for_each_call(tmp_path: Path) -> None:
    io = contract(
        *(constant("taps", 5), tensor("x", 1000), tensor("y", 1000, role="output"), constant("bias")),
        *(scalar("n", 1000), scalar("width", 5)),
        grid="cdiv(n, 256)",
    )
    given = kernel(CONVOLUTION, "cuda", io)
    executable = loaded(given, tmp_path, here())
    calls = [values(given.io, "cuda") for _ in range(3)]
    for args in calls:
        executable.call(args)
    torch.cuda.synchronize()
    for taps, x, y, bias, *_ in calls:
        padded = torch.nn.functional.pad(x, (0, 4))
        expected = sum(taps[k] * padded[k : k + 1000] for k in range(5)) + bias
        torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


SHARED = """
__global__ void reversed_(const float* x, float* y, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}
"""


def test_dynamic_shared_memory_beyond_48_kib(tmp_path: Path) -> None:
    n = 25_000
    args = tensor("x", n), tensor("y", n, role="output"), scalar("n", n)
    x, y, _ = run(SHARED, tmp_path, contract(*args, block=1024, shared_mem="n * 4"))
    assert torch.equal(y, x.flip(0))
    fault = refusal(kernel(SHARED, "cuda", contract(*args, shared_mem=1_000_000)), tmp_path, here())
    assert fault.status is Status.RUNTIME_ERROR and "1000000 bytes of dynamic" in fault.message


def test_dynamic_shared_memory_that_nobody_asked_for(tmp_path: Path) -> None:
    x, y, _ = run(SHARED, tmp_path, contract(tensor("x", 256), tensor("y", 256, role="output"), scalar("n", 256)))
    assert torch.equal(y, x.flip(0))


def test_two_dimensions_from_expressions(tmp_path: Path) -> None:
    source = """
    __global__ void transpose(const float* x, float* y, int rows, int columns) {
        int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
        if (r < rows && c < columns) y[c * rows + r] = x[r * columns + c];
    }
    """
    io = contract(
        tensor("x", 70, 50), tensor("y", 50, 70, role="output"), scalar("rows", 70), scalar("columns", 50),
        grid=["cdiv(columns, 16)", "cdiv(rows, 16)"], block=[16, 16],
    )  # fmt: skip
    x, y, *_ = run(source, tmp_path, io)
    assert torch.equal(y, x.T)


def test_a_grid_wide_sync(tmp_path: Path) -> None:
    source = """
    #include <cooperative_groups.h>
    __global__ void k(int* x, int* y) {
        auto grid = cooperative_groups::this_grid();
        x[grid.thread_rank()] = grid.thread_rank();
        grid.sync();
        y[grid.thread_rank()] = x[grid.size() - 1 - grid.thread_rank()];
    }
    """
    io = contract(tensor("x", 2048, dtype="int32"), tensor("y", 2048, dtype="int32", role="output"), grid=8)
    assert run(source, tmp_path, io)[1].tolist() == list(range(2047, -1, -1))
    fault = call_fault(source, tmp_path, {**io, "launch": {"grid": 100_000}})
    assert "COOPERATIVE_LAUNCH_TOO_LARGE" in fault.message and "smaller grid" in fault.message


def call_fault(source: str, folder: Path, io: dict[str, Any]) -> KernelFault:
    given = kernel(source, "cuda", io)
    executable = loaded(given, folder, here())
    with pytest.raises(KernelFault) as caught:
        executable.call(values(given.io, "cuda"))
    return caught.value


def test_a_launch_that_the_driver_refuses(tmp_path: Path) -> None:
    fault = call_fault(SCALE, tmp_path, {**IO, "launch": {"block": 2048}})
    assert fault.status is Status.RUNTIME_ERROR and fault.compiled
    assert "CUDA_ERROR_INVALID_VALUE" in fault.message and "block (2048, 1, 1)" in fault.message


def test_wrong_kernel_name(tmp_path: Path) -> None:
    fault = refusal(kernel(SCALE, "cuda", IO, kernel_name="nope"), tmp_path, here())
    assert fault.status is Status.COMPILE_ERROR and "Kernel 'nope' not found" in fault.message


def test_runs_on_torchs_stream_and_takes_new_values(tmp_path: Path) -> None:
    given = kernel(SCALE, "cuda", IO)
    executable = loaded(given, tmp_path, here())
    x, y, *_ = values(given.io, "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        executable.call([x, y, 4.0, 300])
        assert not stream.query()
    stream.synchronize()
    assert torch.equal(y[:300], x[:300] * 4) and not y[300:].any()


@pytest.mark.parametrize(
    ("block", "shared", "body"),
    [(256, 0, BODY), (96, 3000, BODY), (512, 40_000, BODY), (128, 0, "{ float a[99]; " + BODY[1:-1] + " }")],
)
def test_occupancy_is_what_the_driver_says(block: int, shared: int, body: str, tmp_path: Path) -> None:
    io = contract(IN, OUT, scalar("s", 2.5), scalar("n", 1000), grid=[4], block=[block], shared_mem=shared)
    facts = built(kernel(SCALE.replace(BODY, body), "cuda", io), tmp_path, here()).facts
    symbol = json.loads((tmp_path / PLAN).read_text())["symbol"]
    function = function_of(load_module((tmp_path / CUBIN).read_bytes(), torch.cuda.current_device()), symbol)
    resident = checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, block, shared))
    assert facts["occupancy"]["blocks_per_multiprocessor"] == resident


def test_random_numbers_of_the_device_library(tmp_path: Path) -> None:
    source = """#include <curand_kernel.h>
__global__ void noise(float* y, unsigned long long seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, i, 0, &state);
    if (i < n) y[i] = curand_normal(&state);
}"""
    y, *_ = run(source, tmp_path, contract(OUT, scalar("seed", 7), scalar("n", 1000), grid="cdiv(n, 256)"))
    assert abs(y.mean().item()) < 0.2 and 0.8 < y.std().item() < 1.2


def test_a_pointer_may_be_null(tmp_path: Path) -> None:
    source = SCALE.replace("y[i] = x[i] * s", "y[i] = x ? x[i] * s : -s")
    _, y, *_ = run(source, tmp_path, contract({"name": "x", "type": "none"}, *IO["args"][1:], grid="cdiv(n, 256)"))
    assert y.tolist() == [-2.5] * 1000
