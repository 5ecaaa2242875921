"""Bias and GELU in one pass between torch's products."""

import torch
import triton
import triton.language as tl


@triton.jit
def bias_gelu(x, bias, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x + at, mask=at < n) + tl.load(bias + at % width, mask=at < n)
    tl.store(x + at, 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)), mask=at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)

    def forward(self, x):
        y = x @ self.up.weight.t()
        bias_gelu[(triton.cdiv(y.numel(), 1024),)](y, self.up.bias, y.numel(), y.shape[1], BLOCK=1024)
        return torch.addmm(x + self.down.bias, y, self.down.weight.t())
