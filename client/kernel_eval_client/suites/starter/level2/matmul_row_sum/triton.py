"""The same: rows are summed, then multiplied with each row of the other."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum(weight, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.load(weight + row * columns + column, mask=column < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@triton.jit
def row_product(x, vector, out, inner, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, inner, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * inner + column, mask=column < inner, other=0.0)
        total += value * tl.load(vector + column, mask=column < inner, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        (rows, inner), columns = x.shape, weight.shape[1]
        vector, out = torch.empty(inner, device=x.device), torch.empty(rows, device=x.device)
        row_sum[(inner,)](weight, vector, columns, BLOCK=1024)
        row_product[(rows,)](x, vector, out, inner, BLOCK=1024)
        return out
