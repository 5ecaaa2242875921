"""Kernel type `multi_kernel`: a named Python entry point."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from domain.result import Status
from tests.backends.loading import Target, kernel, loaded, refusal, tensor

SEQUENCE = """
import math
import cupy as cp
import triton
import triton.language as tl

@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

square = cp.RawKernel('''
extern "C" __global__ void square(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}
''', "square")

def pipeline(x, factor):
    out = torch.empty_like(x)
    n = x.numel()
    scale[(triton.cdiv(n, 256),)](x, out, n, factor, BLOCK=256)
    square((math.ceil(n / 256),), (256,), (out.data_ptr(), cp.int32(n)))
    return out + 1

def plain(x, factor):
    return x * factor
"""

IO = {"args": [tensor("x", 1000), {"name": "factor", "type": "float", "value": 3.0}]}


def test_the_entry_point_is_called_with_the_contracts_arguments(tmp_path: Path) -> None:
    executable = loaded(kernel(SEQUENCE, "multi_kernel", IO, entry_point="plain"), tmp_path)
    assert executable.entry == "function plain"
    assert executable.call([torch.ones(2), 3.0]).tolist() == [3.0, 3.0]


def test_a_missing_entry_point(tmp_path: Path) -> None:
    fault = refusal(kernel(SEQUENCE, "multi_kernel", IO, entry_point="run"), tmp_path)
    assert fault.status is Status.COMPILE_ERROR
    assert "Entry point 'run' not found" in fault.message
    assert "function pipeline" in fault.message


@pytest.mark.gpu
def test_triton_and_cupy_and_torch_in_turn(tmp_path: Path) -> None:
    target = Target("cuda:0", "sm_90")
    executable = loaded(kernel(SEQUENCE, "multi_kernel", IO, entry_point="pipeline"), tmp_path, target)
    x = torch.randn(1000, device="cuda")
    torch.testing.assert_close(executable.call([x, 3.0]), (x * 3) ** 2 + 1)
