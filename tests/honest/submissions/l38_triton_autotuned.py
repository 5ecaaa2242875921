"""Tries warps and stages at its first call."""

import triton
import triton.language as tl

SUBMISSION = {"row": "L38", "type": "triton", "attacks": "axpb", "expect": "H", "on": "gpu"}


@triton.autotune(
    configs=[triton.Config({}, num_warps=warps, num_stages=stages) for warps in (2, 4, 8) for stages in (1, 3)],
    key=["n"],
)
@triton.jit
def axpb(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + 1, mask=i < n)
