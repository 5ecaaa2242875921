"""A row for each program, both answers written from registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def residual_rms_norm(x, residual, weight, out, kept, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row + column, mask=inside, other=0.0)
    value += tl.load(residual + row + column, mask=inside, other=0.0)
    tl.store(kept + row + column, value, mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / width + 1e-6)
    tl.store(out + row + column, value * scale * tl.load(weight + column, mask=inside), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight):
        rows, width = x.shape
        out, kept = torch.empty_like(x), torch.empty_like(x)
        block = triton.next_power_of_2(width)
        residual_rms_norm[(rows,)](x, residual, weight, out, kept, width, BLOCK=block)
        return out, kept
