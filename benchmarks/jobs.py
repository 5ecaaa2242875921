"""The jobs that are sent: small ones, no two of the same source, so that none finds another's build."""

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


def tiny() -> Body:
    """An /evaluate whose kernel takes next to no time."""
    return {"kernel": _torch(REFERENCE), "num_trials": 1}


def right(**options: Any) -> Body:
    """A /compare that passes."""
    return {"ref_kernel": _torch(REFERENCE), "custom_kernel": _torch(RIGHT), **options}


def sleeping() -> Body:
    """An /evaluate that keeps its worker busy and leaves the processors alone, as a kernel on a GPU does."""
    return {"kernel": _torch(SLEEPING), "num_trials": 1}


def mixed(count: int) -> list[Body]:
    """Evaluations, comparisons that are right and wrong, and CUDA to compile, in turn."""
    return [_KINDS[number % len(_KINDS)]() for number in range(count)]


def _wrong() -> Body:
    return {"ref_kernel": _torch(REFERENCE), "custom_kernel": _torch(WRONG), "num_trials": 1}


def _cuda() -> Body:
    body = Example.load(FOLDER / "cuda-saxpy").body
    body["kernel"]["source_code"] += f"\n// {uuid4()}\n"
    return {**body, "num_trials": 1}


def _torch(source: str) -> Body:
    return {"source_code": f"{source}\n# {uuid4()}\n", "kernel_type": KernelType.TORCH.value}


_KINDS = (tiny, lambda: right(num_trials=1), _wrong, _cuda)
