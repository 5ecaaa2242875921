"""All steps in one pass."""

import torch
import triton
import triton.language as tl


@triton.jit
def chain(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x + at, mask=at < n) * 2.0 + 1.0
    y = tl.minimum(tl.maximum(y, -1.0), 3.0)
    tl.store(out + at, y * y - 0.5, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        chain[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
