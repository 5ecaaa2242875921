"""Its own kernel for shapes that suit it, torch for the others."""

import torch
import triton
import triton.language as tl
from torch import nn

SUBMISSION = {"row": "H16", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


@triton.jit
def rows(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    given = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    powers = tl.exp(given - tl.max(given, 0))
    tl.store(out + row * columns + i, powers / tl.sum(powers, 0), mask=i < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[-1] > 4096 or not x.is_contiguous():
            return torch.softmax(x, -1)
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=4)
        return out
