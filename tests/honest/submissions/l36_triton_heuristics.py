"""Chooses its block by a heuristic."""

import triton
import triton.language as tl

SUBMISSION = {"row": "L36", "type": "triton", "attacks": "axpb", "expect": "H", "on": "cpu gpu"}


@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def axpb(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, tl.load(x + i) * 2 + 1)
    else:
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + 1, mask=i < n)
