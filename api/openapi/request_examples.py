"""Example request bodies in the OpenAPI document."""

from __future__ import annotations

from typing import Any

_RELU = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)"

_CUDA_ADD = """__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}"""

_TRITON_ADD = """import triton
import triton.language as tl

@triton.jit
def vector_add(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)
"""

_TORCH_ADD = "class Model(torch.nn.Module):\n    def forward(self, x, y):\n        return x + y"


def _tensor(name: str, role: str, seed: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"shape": [1024], "dtype": "float32"}
    if seed is not None:
        spec["init"] = {"kind": "randn", "seed": seed}
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": spec}


_VECTORS = [_tensor("x", "input", 42), _tensor("y", "input", 43), _tensor("output", "output")]
_LENGTH = {"name": "n", "type": "int", "value": 1024}

_TORCH = {"kernel": {"source_code": _RELU, "kernel_type": "torch"}, "num_trials": 100}
_TRITON = {
    "kernel": {
        "source_code": _TRITON_ADD,
        "kernel_type": "triton",
        "io": {
            "args": [*_VECTORS, _LENGTH, {"name": "BLOCK_SIZE", "type": "int", "value": 256, "is_meta": True}],
            "launch": {"grid": ["cdiv(n, BLOCK_SIZE)"], "num_warps": 4},
        },
    }
}
_REFERENCE = {"source_code": _TORCH_ADD, "kernel_type": "torch"}
_TRITON_COMPARISON = {"ref_kernel": _REFERENCE, "custom_kernel": _TRITON["kernel"]}
_COMPARISON = {
    "ref_kernel": _REFERENCE,
    "custom_kernel": {
        "source_code": _CUDA_ADD,
        "kernel_type": "cuda",
        "io": {"args": [*_VECTORS, _LENGTH], "launch": {"grid": {"x": 4}, "block": {"x": 256}}},
    },
    "atol": 1e-5,
    "rtol": 1e-5,
}

EVALUATE: dict[str, Any] = {
    "torch": {"summary": "A PyTorch module; its inputs are inferred", "value": _TORCH},
    "triton": {"summary": "A Triton kernel with its contract", "value": _TRITON},
}
COMPARE: dict[str, Any] = {
    "triton": {"summary": "Triton against PyTorch", "value": _TRITON_COMPARISON},
    "cuda": {"summary": "CUDA C++ against PyTorch", "value": _COMPARISON},
}
LEGACY: dict[str, Any] = {
    "legacy": {
        "summary": "The first version's body",
        "value": {"ref_code": _RELU, "custom_code": _RELU.replace("Model(", "ModelNew(")},
    }
}
BATCH: dict[str, Any] = {
    "mixed": {
        "summary": "One of each",
        "value": {"jobs": [{"operation": "evaluate", **_TORCH}, {"operation": "compare", **_COMPARISON}]},
    }
}
CANCEL: dict[str, Any] = {
    "batch": {"summary": "Every job of a batch", "value": {"batch_id": "63b35658-379f-430a-a557-b8dbf3581521"}},
    "jobs": {"summary": "Some jobs", "value": {"job_ids": ["863ae72d-f647-41c3-a368-eb8d349a24ea"]}},
}
