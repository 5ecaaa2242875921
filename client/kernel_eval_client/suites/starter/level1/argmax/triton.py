"""A row for each program; of equal ones the first."""

import torch
import triton
import triton.language as tl


@triton.jit
def argmax(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * width + column, mask=column < width, other=-float("inf"))
    tl.store(out + row, tl.argmax(value, axis=0).to(tl.int64))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax[(rows,)](x, out, width, BLOCK=triton.next_power_of_2(width))
        return out
