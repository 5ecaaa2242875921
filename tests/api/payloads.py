"""Request bodies: those of the original README, as printed there, and small equivalents of its test data."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def tensor(name: str, shape: list[int], role: str | None = "input", dtype: str = "float32", **init: Any) -> Json:
    spec: Json = {"shape": shape, "dtype": dtype}
    if init:
        spec["init"] = init
    argument: Json = {"name": name, "type": "tensor", "tensor_spec": spec}
    return argument if role is None else {**argument, "role": role}


def scalar(name: str, value: int | float, kind: str = "int", **more: Any) -> Json:
    return {"name": name, "type": kind, "value": value, **more}


def kernel(source: str, kernel_type: str, args: list[Json] | None = None, **launch: Any) -> Json:
    code: Json = {"source_code": source, "kernel_type": kernel_type}
    if args is not None:
        code["io"] = {"args": args, "launch": launch} if launch else {"args": args}
    return code


RELU = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)"
DOUBLE = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2"
GRAM = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.matmul(x, x.T)"
CUSTOM_GRAM = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return custom_matmul(x, x.T)"
ATTENTION = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(512, 8)
    
    def forward(self, x):
        return self.attention(x, x, x)[0]
"""
TRITON_ADD = """
import triton
import triton.language as tl

@triton.jit
def vector_add(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)
"""
CUDA_ADD = """
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""

VECTOR_ARGS = [
    tensor("x", [1024], kind="randn", seed=42),
    tensor("y", [1024], kind="randn", seed=43),
    tensor("output", [1024], "output"),
    {"name": "n_elements", "type": "int", "value": 1024, "role": "input"},
]
BLOCK_SIZE = {"name": "BLOCK_SIZE", "type": "int", "value": 256, "role": "input", "is_meta": True}

README: dict[str, tuple[str, Json]] = {
    "first request": ("/evaluate", {"kernel": kernel(RELU, "torch"), "num_trials": 100}),
    "evaluate": ("/evaluate", {"kernel": kernel(DOUBLE, "torch"), "num_trials": 100, "timeout": 120}),
    "compare": (
        "/compare",
        {"ref_kernel": kernel(GRAM, "torch"), "custom_kernel": kernel(CUSTOM_GRAM, "torch_cuda"), "num_trials": 200},
    ),
    "benchmark a model": ("/evaluate", {"kernel": kernel(ATTENTION, "torch"), "num_trials": 100}),
    "compare strategies": (
        "/compare",
        {
            "ref_kernel": kernel("# Standard attention implementation", "torch"),
            "custom_kernel": kernel("# Flash attention implementation", "torch_cuda"),
            "num_trials": 200,
        },
    ),
    "triton": (
        "/evaluate",
        {
            "kernel": kernel(TRITON_ADD, "triton", [*VECTOR_ARGS, BLOCK_SIZE], grid={"x": 4}, num_warps=4),
            "num_trials": 100,
        },
    ),
}


def _pair(custom: Json, args: list[Json], **more: Any) -> Json:
    """A /compare body of the original's test data: a torch reference with the same contract, and no metadata."""
    reference = kernel("class Model(torch.nn.Module): ...", "torch", args)
    return {"ref_kernel": reference, "custom_kernel": custom, **more}


def _cuda(args: list[Json], grid: Json, block: Json, **more: Any) -> Json:
    return _pair(kernel(CUDA_ADD, "cuda", args, grid=grid, block=block), args, **more)


def _triton(args: list[Json], grid: Json, **more: Any) -> Json:
    return _pair(kernel(TRITON_ADD, "triton", args, grid=grid), args, **more)


_BIG, _MIDDLE = [2048, 2048], [1024, 1024]
_FILLED = [tensor("a", [1024], kind="full", fill_value=2.0), tensor("b", [1024], kind="full", fill_value=3.0)]
_MATRICES = [tensor("A", [64, 128], kind="randn", seed=0), tensor("B", [128, 256], kind="randn", seed=1)]
_SIZES = [scalar("M", 64), scalar("K", 128), scalar("N", 256)]
_IMAGE = tensor("x", _MIDDLE, kind="randn", seed=42)
_ROWS = tensor("x", [256, 1024], kind="randn", seed=42)
_SHORT, _LONG = {"num_trials": 100, "timeout": 30}, {"num_trials": 10, "timeout": 120}

TEST_DATA: dict[str, Json] = {
    "cuda/vector_add": _cuda(
        [*_FILLED, tensor("c", [1024], "output"), scalar("n", 1024)], {"x": 4}, {"x": 256}, **_SHORT
    ),
    "cuda/matrix_multiply": _cuda(
        [*_MATRICES, tensor("C", [64, 256], "output"), *_SIZES], {"x": 16, "y": 4}, {"x": 16, "y": 16}, **_SHORT
    ),
    "cuda/relu_activation": _cuda(
        [tensor("x", _BIG, kind="randn", seed=42), tensor("y", _BIG, "output"), scalar("n", 2048 * 2048)],
        {"x": 4096, "y": 1, "z": 1}, {"x": 1024, "y": 1, "z": 1}, **_LONG,
    ),
    "cuda/gelu_activation": _cuda(
        [_IMAGE, tensor("y", _MIDDLE, "output"), scalar("n", 1 << 20)], {"x": 1024}, {"x": 1024}, **_LONG
    ),
    "cuda/sum_reduction": _cuda(
        [_ROWS, tensor("y", [256], "output"), scalar("M", 256), scalar("N", 1024), scalar("stride", 1024)],
        {"x": 256}, {"x": 256}, **_LONG,
    ),
    "triton/elementwise_add_io": _triton(
        [
            _IMAGE, tensor("y", _MIDDLE, kind="randn", seed=43), tensor("out", _MIDDLE, "output"),
            scalar("n", 1 << 20), scalar("BLOCK_SIZE", 1024, is_meta=True),
        ],
        {"x": 1024}, **_LONG,
    ),
    "triton/relu_activation_io": _triton(
        [tensor("x", _BIG, kind="randn", seed=42), tensor("y", _BIG, "output"), scalar("n", 1 << 22), BLOCK_SIZE],
        {"x": 4096}, **_LONG,
    ),
    "triton/gelu_activation_io": _triton(
        [_IMAGE, tensor("y", _MIDDLE, "output"), scalar("n", 1 << 20), BLOCK_SIZE], {"x": 1024}, **_LONG
    ),
    "triton/sum_reduction_io": _triton(
        [
            _ROWS, tensor("y", [256], "output"), scalar("M", 256), scalar("N", 1024),
            scalar("BLOCK_M", 32, is_meta=True), scalar("BLOCK_N", 256, is_meta=True),
        ],
        {"x": 8}, **_LONG,
    ),
    "triton/torch_triton_add": _pair(
        kernel(
            TRITON_ADD, "triton",
            [
                tensor("x", [16], kind="ones"), tensor("y", [16], kind="full", fill_value=2.0),
                tensor("out", [16], "output"), scalar("n", 16), scalar("BLOCK_SIZE", 16, is_meta=True),
            ],
            grid={"x": 1, "y": 1, "z": 1}, num_warps=4,
        ),
        [tensor("x", [16], None, kind="ones"), tensor("y", [16], None, kind="full", fill_value=2.0)],
        num_trials=10,
    ),
    "triton/triton_matmul_optimized": _triton(
        [
            *_MATRICES, tensor("C", [64, 256], "output"), *_SIZES,
            *(scalar(f"stride_{name}", 1) for name in ("am", "ak", "bk", "bn", "cm", "cn")),
            *(scalar(f"BLOCK_{name}", 32, is_meta=True) for name in "MNK"),
        ],
        {"x": 2, "y": 8}, num_trials=10,
    ),
}  # fmt: skip

LEGACY = {"ref_code": DOUBLE, "custom_code": DOUBLE.replace("Model(", "ModelNew(")}
