"""A row for each program, read once."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row + column, mask=column < width, other=-float("inf"))
    raised = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + column, raised / tl.sum(raised, axis=0), mask=column < width)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        softmax[(rows,)](x, out, width, BLOCK=triton.next_power_of_2(width))
        return out
