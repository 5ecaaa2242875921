"""A softmax over rows in Gluon."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def softmax_kernel(x, out, columns, BLOCK: gl.constexpr):
    column = gl.arange(0, BLOCK, layout=gl.BlockedLayout([4], [32], [4], [0]))
    at = gl.program_id(0) * columns + column
    inside = column < columns
    values = gl.load(x + at, mask=inside, other=-float("inf"))
    weights = gl.exp(values - gl.max(values, 0))
    gl.store(out + at, weights / gl.sum(weights, 0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, columns, BLOCK=1 << (columns - 1).bit_length())
        return out
