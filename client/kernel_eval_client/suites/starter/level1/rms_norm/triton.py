"""A row for each program, read once."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm(x, weight, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row + column, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / width + 1e-6)
    tl.store(out + row + column, value * scale * tl.load(weight + column, mask=inside), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        rows, width = x.shape
        out = torch.empty_like(x)
        rms_norm[(rows,)](x, weight, out, width, BLOCK=triton.next_power_of_2(width))
        return out
