"""Kernels from 2 µs to 100 ms for timing, and a kernel whose time is adjustable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

SPIN = """
__global__ void spin(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int step = 0; step < STEPS; step++) v = fmaf(v, 1.0f, 0.0f);
    if (i < n) out[i] = v;
}
"""
SPIN_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class Case:
    """A torch kernel: an expression of x, the shape and dtype of x, and the number of calls in `by_hand`'s window."""

    name: str
    expression: str
    shape: str
    dtype: str
    calls: int

    def source(self) -> dict[str, Any]:
        inputs = f"def get_inputs():\n    return [torch.randn({self.shape}, device='cuda', dtype=torch.{self.dtype})]\n"
        model = f"class Model(nn.Module):\n    def forward(self, x):\n        return {self.expression}\n"
        return {"source_code": model + inputs, "kernel_type": "torch"}

    @property
    def function(self) -> Callable[[torch.Tensor], Any]:
        function: Callable[[torch.Tensor], Any] = eval(f"lambda x: {self.expression}", {"torch": torch})
        return function

    def inputs(self) -> torch.Tensor:
        shape = [int(size) for size in self.shape.split(",")]
        return torch.randn(shape, device="cuda", dtype=getattr(torch, self.dtype))


CASES = [
    Case("multiply 1 k", "x * 2", "1024", "float32", 400),
    Case("add 64 k", "x + 1", "65536", "float32", 400),
    Case("gelu 256 k", "torch.nn.functional.gelu(x)", "262144", "float32", 400),
    Case("exp 1 M", "torch.exp(x)", "1024,1024", "float32", 300),
    Case("row sum 1024²", "x.sum(-1)", "1024,1024", "float32", 300),
    Case("softmax 1024²", "torch.softmax(x, -1)", "1024,1024", "float32", 300),
    Case("layer norm 2048²", "torch.nn.functional.layer_norm(x, (2048,))", "2048,2048", "float32", 150),
    Case("transpose 2048²", "x.t().contiguous()", "2048,2048", "float32", 150),
    Case("cumsum 2048²", "torch.cumsum(x, -1)", "2048,2048", "float32", 100),
    Case("product 1024² bf16", "x @ x", "1024,1024", "bfloat16", 200),
    Case("product 2048² bf16", "x @ x", "2048,2048", "bfloat16", 150),
    Case("multiply 16 M", "x * 2", "16,1024,1024", "float32", 40),
    Case("top 8 of 4096²", "torch.topk(x, 8, -1)[0]", "4096,4096", "float32", 20),
    Case("multiply 64 M", "x * 2", "64,1024,1024", "float32", 20),
    Case("product 4096² bf16", "x @ x", "4096,4096", "bfloat16", 20),
    Case("row sum 64 M", "x.sum(-1)", "65536,1024", "float32", 20),
    Case("product 2048² fp32", "x @ x", "2048,2048", "float32", 20),
    Case("product 8192² bf16", "x @ x", "8192,8192", "bfloat16", 5),
    Case("sort 4096²", "torch.sort(x, -1)[0]", "4096,4096", "float32", 3),
    Case("product 8192² fp32", "x @ x", "8192,8192", "float32", 2),
    Case("product 13824² fp32", "x @ x", "13824,13824", "float32", 1),
]


def spin(steps: int) -> dict[str, Any]:
    """A raw kernel that takes `steps` dependent multiplications and little else."""
    spec = {"shape": [SPIN_ELEMENTS], "dtype": "float32"}
    args = [
        {"name": "x", "type": "tensor", "tensor_spec": spec | {"init": {"kind": "randn"}}},
        {"name": "out", "type": "tensor", "role": "output", "tensor_spec": spec},
        {"name": "n", "type": "int", "value": SPIN_ELEMENTS},
    ]
    io = {"args": args, "launch": {"grid": "cdiv(n, 256)", "block": 256}}
    return {"source_code": SPIN.replace("STEPS", str(steps)), "kernel_type": "cuda", "io": io}
