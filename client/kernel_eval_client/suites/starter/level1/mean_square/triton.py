"""A row for each program, block by block."""

import torch
import triton
import triton.language as tl


@triton.jit
def mean_square(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * width + column, mask=column < width, other=0.0)
        total += value * value
    tl.store(out + row, tl.sum(total, axis=0) / width)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty(rows, device=x.device)
        mean_square[(rows,)](x, out, width, BLOCK=1024)
        return out
