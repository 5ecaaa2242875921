"""A row for each program, the maximum and the sum kept up together."""

import torch
import triton
import triton.language as tl


@triton.jit
def log_sum_exp(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * width + column, mask=column < width, other=-float("inf"))
    top = tl.max(value, axis=0)
    tl.store(out + row, top + tl.log(tl.sum(tl.exp(value - top), axis=0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty(rows, device=x.device)
        log_sum_exp[(rows,)](x, out, width, BLOCK=triton.next_power_of_2(width))
        return out
