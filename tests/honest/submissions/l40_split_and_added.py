"""Adds the parts of a sum with atomics, in any order."""

import torch
import triton
import triton.language as tl
from torch import nn

SUBMISSION = {"row": "H15", "type": "torch", "attacks": "row_sum", "expect": "H", "on": "cpu gpu"}


@triton.jit
def partial(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + row, tl.sum(tl.load(x + row * columns + i, mask=i < columns, other=0.0), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[0], device=x.device)
        partial[(x.shape[0], triton.cdiv(x.shape[1], 512))](x, out, x.shape[1], BLOCK=512)
        return out
