"""A function over two kernels of its own, as a multi_kernel."""

import torch
import triton
import triton.language as tl

SUBMISSION = {
    "row": "L41",
    "type": "multi_kernel",
    "attacks": "axpb",
    "expect": "H",
    "on": "cpu gpu",
    "metadata": {"entry_point": "affine"},
}


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def increment(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def affine(x):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    double[grid](x, out, x.numel(), BLOCK=1024)
    increment[grid](out, x.numel(), BLOCK=1024)
    return out
