"""A fixed number of programs walks over all blocks."""

import triton
import triton.language as tl

SUBMISSION = {"row": "L37", "type": "triton", "attacks": "axpb", "expect": "H", "on": "cpu gpu"}


@triton.jit
def axpb(x, out, n, BLOCK: tl.constexpr):
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + 1, mask=i < n)
