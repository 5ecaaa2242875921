"""All three sums in one pass over both rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def cosine(a, b, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    left = tl.load(a + row + column, mask=column < width, other=0.0)
    right = tl.load(b + row + column, mask=column < width, other=0.0)
    lengths = tl.maximum(tl.sqrt(tl.sum(left * left, axis=0)), 1e-8)
    lengths *= tl.maximum(tl.sqrt(tl.sum(right * right, axis=0)), 1e-8)
    tl.store(out + tl.program_id(0), tl.sum(left * right, axis=0) / lengths)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        rows, width = a.shape
        out = torch.empty(rows, device=a.device)
        cosine[(rows,)](a, b, out, width, BLOCK=triton.next_power_of_2(width))
        return out
