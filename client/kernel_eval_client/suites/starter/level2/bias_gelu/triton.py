"""All steps in one pass over the elements."""

import torch
import triton
import triton.language as tl


@triton.jit
def bias_gelu(x, bias, out, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    y = tl.load(x + at, mask=inside) + tl.load(bias + at % width, mask=inside)
    inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
    tl.store(out + at, y * tl.sigmoid(2.0 * inner), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias):
        out = torch.empty_like(x)
        bias_gelu[(triton.cdiv(x.numel(), 1024),)](x, bias, out, x.numel(), x.shape[1], BLOCK=1024)
        return out
