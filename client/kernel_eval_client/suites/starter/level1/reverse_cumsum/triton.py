"""A row for each program: the whole sum less what comes before."""

import torch
import triton
import triton.language as tl


@triton.jit
def reverse_cumsum(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row + column, mask=column < width, other=0.0)
    rest = tl.sum(value, axis=0) - tl.cumsum(value, axis=0) + value
    tl.store(out + row + column, rest, mask=column < width)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        reverse_cumsum[(rows,)](x, out, width, BLOCK=triton.next_power_of_2(width))
        return out
