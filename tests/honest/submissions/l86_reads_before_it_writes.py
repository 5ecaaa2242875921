"""Clears its output before it adds to it, as split sums do: what lay there is no part of it."""

import triton
import triton.language as tl

SUBMISSION = {"row": "L86", "type": "triton", "attacks": "axpb", "expect": "H", "on": "cpu gpu"}


@triton.jit
def axpb(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.full((BLOCK,), 1.0, tl.float32), mask=i < n)
    tl.store(out + i, tl.load(out + i, mask=i < n) + 2 * tl.load(x + i, mask=i < n), mask=i < n)
