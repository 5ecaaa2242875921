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
GROUP = 16
"""Candidates for each reference, as a training sends them."""
LAUNCHING = """
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
EXTENSION = """from torch.utils.cpp_extension import load_inline

extension = load_inline(
    name="relu_{name}", functions=["relu"], no_implicit_headers=True, extra_cflags=["-O1"],
    cpp_sources='''#include <torch/extension.h>
void launch(const float* x, float* y, int n);
torch::Tensor relu(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}''',
    cuda_sources='''{cuda}
void launch(const float* x, float* y, int n) {{ kernel<<<(n + 255) / 256, 256>>>(x, y, n); }}''',
)

class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
"""
DEFECTS = {
    "wrong": (("0.0)", "1.0)"), ("0.0f", "1.0f")),
    "crashing": (("y + at", "y + (1 << 40) + at"), ("y[at]", "y[at + (1LL << 40)]")),
}
"""Replacements in the Triton and CUDA kernels that make them wrong, or write far outside of their output."""


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


def groups(count: int, *, gpu: bool, **options: Any) -> list[Body]:
    """Comparisons as a training sends them: GROUP candidates for each reference, a third wrong and a tenth crashing.

    The candidates of a group are in turn Triton launched from Python, bare Triton and, with a GPU, bare CUDA and
    extensions.
    """
    kinds = ("launching", "triton", "cuda", "extension") if gpu else ("launching", "triton")
    bodies: list[Body] = []
    for number in range(count):
        if number % GROUP == 0:
            reference = _torch(REFERENCE)
        defect = "crashing" if number % 10 == 9 else "wrong" if number % 3 == 1 else None
        # Every kind comes with every defect: one more step in each group.
        kind = kinds[(number + number // GROUP) % len(kinds)]
        bodies.append({"ref_kernel": reference, "custom_kernel": _candidate(kind, defect), **options})
    return bodies


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


def _candidate(kind: str, defect: str | None) -> Body:
    triton_source, cuda_source = TRITON, CUDA
    if defect is not None:
        in_triton, in_cuda = DEFECTS[defect]
        triton_source, cuda_source = triton_source.replace(*in_triton), cuda_source.replace(*in_cuda)
    name = uuid4().hex
    match kind:
        case "launching":
            source, kernel_type, io = triton_source + LAUNCHING, KernelType.TRITON, None
        case "triton":
            source, kernel_type, io = triton_source, KernelType.TRITON, _contract("x", "y", meta=True)
        case "cuda":
            return {"source_code": f"{cuda_source}\n// {name}\n", "kernel_type": "cuda", "io": _contract("x", "y")}
        case _:
            source = EXTENSION.format(name=name, cuda=cuda_source.replace('extern "C" ', ""))
            kernel_type, io = KernelType.TORCH_CUDA, None
    return {"source_code": f"{source}\n# {name}\n", "kernel_type": kernel_type.value, "io": io}


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
