"""A row for each program, read once."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x, weight, bias, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row + column, mask=inside, other=0.0)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / width, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + 1e-5)
    scaled = centred * scale * tl.load(weight + column, mask=inside) + tl.load(bias + column, mask=inside)
    tl.store(out + row + column, scaled, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width))
        self.bias = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        layer_norm[(rows,)](x, self.weight, self.bias, out, width, BLOCK=triton.next_power_of_2(width))
        return out
