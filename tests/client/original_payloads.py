"""Requests of the kinds that the original service's test data has: the same shapes and numbers, sources of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.api.payloads import Json, kernel, scalar, tensor

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
ADD_CUDA = """
__global__ void vector_add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""
MATMUL_CUDA = """
__global__ void multiply(const float* A, const float* B, float* C, int M, int K, int N) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
    C[row * N + column] = sum;
}
"""
RELU_CUDA = """
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
"""
GELU_CUDA = """
__global__ void gelu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + tanhf(0.7978845608f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}
"""
SUM_CUDA = """
__global__ void row_sum(const float* x, float* y, int M, int N, int stride) {
    extern __shared__ float partial[];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < N; i += blockDim.x) sum += x[blockIdx.x * stride + i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = partial[0];
}
"""
SCALE_CUDA = """
extern "C" __global__ void scale(const float* x, float* y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"""
ADD_TRITON = f"""{HEAD}def add(x, y, out, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
"""
RELU_TRITON = f"""{HEAD}def relu(x, y, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)
"""
GELU_TRITON = f"""{HEAD}def gelu(x, y, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, v * tl.sigmoid(1.5957691216 * (v + 0.044715 * v * v * v)), mask=at < n)
"""
SUM_TRITON = f"""{HEAD}def row_sum(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)
        inside = (row[:, None] < M) & (column[None, :] < N)
        total += tl.sum(tl.load(x + row[:, None] * N + column[None, :], mask=inside, other=0.0), axis=1)
    tl.store(y + row, total, mask=row < M)
"""
MATMUL_TRITON = f"""{HEAD}def multiply(
    A, B, C, M, N, K, am, ak, bk, bn, cm, cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(A + row[:, None] * am + k[None, :] * ak, mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        inside = (k[:, None] < K) & (column[None, :] < N)
        b = tl.load(B + k[:, None] * bk + column[None, :] * bn, mask=inside, other=0.0)
        total += tl.dot(a, b)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(C + row[:, None] * cm + column[None, :] * cn, total, mask=inside)
"""


def model(arguments: str, answer: str) -> str:
    return f"class Model(torch.nn.Module):\n    def forward(self, {arguments}):\n        return {answer}\n"


GELU = "torch.nn.functional.gelu(x)"
MATRICES = [tensor("A", [64, 128], kind="randn", seed=0), tensor("B", [128, 256], kind="randn", seed=1)]


def _body(custom: Json, reference: str, args: list[Json] | None = None, **more: Any) -> Json:
    args = args if args is not None else custom["io"]["args"]
    return {"ref_kernel": kernel(reference, "torch", args), "custom_kernel": custom, **more}


def cuda_vector_add(side: int) -> Json:
    filled = [tensor("a", [1024], kind="full", fill_value=2.0), tensor("b", [1024], kind="full", fill_value=3.0)]
    args = [*filled, tensor("c", [1024], "output"), scalar("n", 1024)]
    custom = kernel(ADD_CUDA, "cuda", args, grid={"x": 4}, block={"x": 256})
    return _body(custom, model("a, b", "a + b"), num_trials=100, timeout=30)


def cuda_matrix_multiply(side: int) -> Json:
    args = [*MATRICES, tensor("C", [64, 256], "output"), scalar("M", 64), scalar("K", 128), scalar("N", 256)]
    custom = kernel(MATMUL_CUDA, "cuda", args, grid={"x": 16, "y": 4}, block={"x": 16, "y": 16})
    return _body(custom, model("A, B", "A @ B"), num_trials=100, timeout=30)


def cuda_relu_activation(side: int) -> Json:
    args = [tensor("x", [2048, 2048], kind="randn", seed=42), tensor("y", [2048, 2048], "output"), scalar("n", 1 << 22)]
    custom = kernel(RELU_CUDA, "cuda", args, grid={"x": 4096}, block={"x": 1024})
    return _body(custom, model("x", "torch.relu(x)"), num_trials=10, timeout=120)


def cuda_gelu_activation(side: int) -> Json:
    args = [tensor("x", [1024, 1024], kind="randn", seed=42), tensor("y", [1024, 1024], "output"), scalar("n", 1 << 20)]
    custom = kernel(GELU_CUDA, "cuda", args, grid={"x": 1024}, block={"x": 1024})
    return _body(custom, model("x", GELU), num_trials=10, timeout=120)


def cuda_sum_reduction(side: int) -> Json:
    sizes = [scalar("M", 256), scalar("N", 1024), scalar("stride", 1024)]
    args = [tensor("x", [256, 1024], kind="randn", seed=42), tensor("y", [256], "output"), *sizes]
    custom = kernel(SUM_CUDA, "cuda", args, grid={"x": 256}, block={"x": 256})  # Its shared memory is not asked for.
    return _body(custom, model("x", "x.sum(dim=1)"), num_trials=10, timeout=120)


def cuda_scale(side: int) -> Json:
    """Its client's own example: the factor came as a double there, was read as 0, and nothing compared the zeros."""
    args = [tensor("x", [1024], kind="randn", seed=42), tensor("y", [1024], "output")]
    launch = {"grid": {"x": 4}, "block": {"x": 256}}
    custom = kernel(SCALE_CUDA, "cuda", [*args, scalar("factor", 2.5, "float"), scalar("n", 1024)], **launch)
    return _body(custom, model("x", "x * 2.5"), num_trials=10, timeout=60)


def _flat(source: str, side: int, inputs: list[Json], reference: str) -> Json:
    size = {"name": "n", "type": "int", "value": side * side}  # Without a role, as there.
    block = scalar("BLOCK_SIZE", 1024, is_meta=True)
    args = [*inputs, tensor("out", [side, side], "output"), size, block]
    custom = kernel(source, "triton", args, grid={"x": max(1, side * side // 1024)})
    return _body(custom, reference, num_trials=10, timeout=120)


def triton_elementwise_add_io(side: int) -> Json:
    inputs = [tensor(name, [side, side], kind="randn", seed=seed) for name, seed in (("x", 42), ("y", 43))]
    return _flat(ADD_TRITON, side, inputs, model("x, y", "x + y"))


def triton_relu_activation_io(side: int) -> Json:
    double = side * 2
    return _flat(
        RELU_TRITON, double, [tensor("x", [double, double], kind="randn", seed=42)], model("x", "torch.relu(x)")
    )


def triton_gelu_activation_io(side: int) -> Json:
    return _flat(GELU_TRITON, side, [tensor("x", [side, side], kind="randn", seed=42)], model("x", GELU))


def triton_sum_reduction_io(side: int) -> Json:
    x = tensor("x", [256, 1024], kind="randn", seed=42)
    blocks = [scalar("BLOCK_M", 32, is_meta=True), scalar("BLOCK_N", 256, is_meta=True)]
    args = [x, tensor("y", [256], "output"), scalar("M", 256), scalar("N", 1024), *blocks]
    custom = kernel(SUM_TRITON, "triton", args, grid={"x": 8})
    other = [{**x, "name": "input"}]  # The reference's argument has another name there.
    return _body(custom, model("input", "input.sum(dim=1)"), other, num_trials=10, timeout=120)


def triton_torch_triton_add(side: int) -> Json:
    inputs = [tensor("x", [16], None, kind="ones"), tensor("y", [16], None, kind="full", fill_value=2.0)]
    args = [*inputs, tensor("out", [16], "output"), scalar("n", 16), scalar("BLOCK_SIZE", 16, is_meta=True)]
    custom = kernel(ADD_TRITON, "triton", args, grid={"x": 1, "y": 1, "z": 1}, num_warps=4)
    empty = "\ndef get_inputs():\n    return []\n"  # The contract wins over it.
    return _body(custom, model("x, y", "x + y") + empty, inputs, num_trials=10)


def triton_matmul_optimized(side: int) -> Json:
    strides = {"am": 128, "ak": 1, "bk": 256, "bn": 1, "cm": 256, "cn": 1}
    args = [
        *(*MATRICES, tensor("C", [64, 256], "output"), scalar("M", 64), scalar("N", 256), scalar("K", 128)),
        *(scalar(name, value) for name, value in strides.items()),
        *(scalar(f"BLOCK_{name}", 32, is_meta=True) for name in "MNK"),
    ]
    custom = kernel(MATMUL_TRITON, "triton", args, grid={"x": 2, "y": 8})
    empty = "\ndef get_inputs():\n    return []\n"
    return _body(custom, model("A, B", "A @ B") + empty, MATRICES, num_trials=10)


PAYLOADS: dict[str, Callable[[int], Json]] = {
    "cuda/vector_add": cuda_vector_add,
    "cuda/matrix_multiply": cuda_matrix_multiply,
    "cuda/relu_activation": cuda_relu_activation,
    "cuda/gelu_activation": cuda_gelu_activation,
    "cuda/sum_reduction": cuda_sum_reduction,
    "cuda/scale": cuda_scale,
    "triton/elementwise_add_io": triton_elementwise_add_io,
    "triton/relu_activation_io": triton_relu_activation_io,
    "triton/gelu_activation_io": triton_gelu_activation_io,
    "triton/sum_reduction_io": triton_sum_reduction_io,
    "triton/torch_triton_add": triton_torch_triton_add,
    "triton/triton_matmul_optimized": triton_matmul_optimized,
}

REF_CODE = (
    "import torch\n\n"
    + model("a, b", "a + b")
    + "\ndef get_inputs():\n    return [torch.randn(1, 128).cuda(), torch.randn(1, 128).cuda()]\n"
    + "\ndef get_init_inputs():\n    return []\n"
)
CUSTOM_CODE = '''
import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) out[i] = a[i] + b[i];
}

torch::Tensor add(torch::Tensor a, torch::Tensor b) {
    auto out = torch::zeros_like(a);
    add_kernel<<<(a.numel() + 255) / 256, 256>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), a.numel());
    return out;
}
"""
added = load_inline(
    name="add", cpp_sources="torch::Tensor add(torch::Tensor a, torch::Tensor b);", cuda_sources=source,
    functions=["add"],
)

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return added.add(a, b)
'''
