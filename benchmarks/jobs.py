"""Small jobs with unique sources, so that no job uses another's build."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from domain.kernel import KernelType
from stack.example import FOLDER, Example

Body = dict[str, Any]

REFERENCE = """class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(256, 256)]
"""
SLEEPING = """import time

class Model(nn.Module):
    def forward(self, x):
        time.sleep(0.2)
        return x

def get_inputs():
    return [torch.randn(4)]
"""
RIGHT = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.clamp(min=0)\n"
WRONG = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.clamp(min=1)\n"
TRITON = """import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)
"""
CUDA = """extern "C" __global__ void kernel(const float* x, float* y, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] = fmaxf(x[at], 0.0f);
}
"""
ADD = """extern "C" __global__ void kernel(const float* a, const float* b, float* c, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) c[at] = a[at] + b[at];
}
"""
SIDE, BLOCK = 256, 1024


def tiny() -> Body:
    """An /evaluate whose kernel takes next to no time."""
    return {"kernel": _torch(REFERENCE), "num_trials": 1}


def right(**options: Any) -> Body:
    """A /compare that passes."""
    return {"ref_kernel": _torch(REFERENCE), "custom_kernel": _torch(RIGHT), **options}


def vector_add() -> Body:
    """An /evaluate of a raw CUDA kernel, which needs a GPU."""
    source = f"{ADD}\n// {uuid4()}\n"
    kernel = {"source_code": source, "kernel_type": KernelType.CUDA.value, "io": _contract("ab", "c")}
    return {"kernel": kernel, "budget": "quick"}


def triton(**options: Any) -> Body:
    """A /compare that passes, of PyTorch and Triton."""
    source, io = f"{TRITON}\n# {uuid4()}\n", _contract("x", "y", meta=True)
    kernel = {"source_code": source, "kernel_type": KernelType.TRITON.value, "io": io}
    return {"ref_kernel": _torch(REFERENCE), "custom_kernel": kernel, **options}


def cuda(**options: Any) -> Body:
    """A /compare that passes, of PyTorch and raw CUDA, which needs a GPU."""
    source = f"{CUDA}\n// {uuid4()}\n"
    kernel = {"source_code": source, "kernel_type": KernelType.CUDA.value, "io": _contract("x", "y")}
    return {"ref_kernel": _torch(REFERENCE), "custom_kernel": kernel, **options}


def comparisons(count: int, *, gpu: bool, **options: Any) -> list[Body]:
    """Small comparisons that pass: Triton and CUDA in turn, or PyTorch without a GPU."""
    kinds = (triton, cuda) if gpu else (right,)
    return [kinds[number % len(kinds)](**options) for number in range(count)]


def sleeping() -> Body:
    """An /evaluate that keeps its worker busy but uses no processor, as a kernel on a GPU does."""
    return {"kernel": _torch(SLEEPING), "num_trials": 1}


def mixed(count: int) -> list[Body]:
    """Evaluations, right and wrong comparisons, and CUDA to compile, in turn."""
    return [_KINDS[number % len(_KINDS)]() for number in range(count)]


def _wrong() -> Body:
    return {"ref_kernel": _torch(REFERENCE), "custom_kernel": _torch(WRONG), "num_trials": 1}


def _cuda() -> Body:
    body = Example.load(FOLDER / "cuda-saxpy").body
    body["kernel"]["source_code"] += f"\n// {uuid4()}\n"
    return {**body, "num_trials": 1}


def _contract(inputs: str, output: str, *, meta: bool = False) -> Body:
    """A contract of tensors of 256 x 256 and their number of elements; with `meta`, also a Triton kernel's BLOCK."""
    spec = {"shape": [SIDE, SIDE], "dtype": "float32"}
    drawn = {**spec, "init": {"kind": "randn"}}
    args: list[Body] = [{"name": name, "type": "tensor", "role": "input", "tensor_spec": drawn} for name in inputs]
    args.append({"name": output, "type": "tensor", "role": "output", "tensor_spec": spec})
    args.append({"name": "n", "type": "int", "value": SIDE * SIDE})
    launch: Body = {"grid": {"x": f"cdiv(n, {BLOCK})"}, "block": {"x": BLOCK}}
    if meta:
        args.append({"name": "BLOCK", "type": "int", "value": BLOCK, "is_meta": True})
        launch = {"grid": {"x": "cdiv(n, BLOCK)"}}
    return {"args": args, "launch": launch}


def _torch(source: str) -> Body:
    return {"source_code": f"{source}\n# {uuid4()}\n", "kernel_type": KernelType.TORCH.value}


_KINDS = (tiny, lambda: right(num_trials=1), _wrong, _cuda)
