"""Fills its JIT cache while it is imported, for the sizes that it expects, with the kernel that it calls."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SUBMISSION = {"row": "L88", "type": "gluon", "attacks": "axpb", "expect": "H", "on": "gpu"}


@gluon.jit
def axpb(x, out, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(out + at, gl.load(x + at, mask=at < n) * 2 + 1, mask=at < n)


if torch.cuda.is_available():
    for size in (1000, 1024):
        axpb.warmup(torch.float32, torch.float32, size, BLOCK=256, grid=(1,))
