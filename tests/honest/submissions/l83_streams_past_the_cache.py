"""Reads its input under the default policy of the cache and writes past it: what streams need not stay."""

import triton
import triton.language as tl

SUBMISSION = {"row": "L83", "type": "triton", "attacks": "axpb", "expect": "H", "on": "cpu gpu"}


@triton.jit
def axpb(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + i, mask=i < n, eviction_policy="evict_first")
    tl.store(out + i, given * 2 + 1, mask=i < n, cache_modifier=".cs")
