"""Compiles for the sizes of its inputs, which are constants of the code, and for nothing that they hold."""

import torch
import triton
import triton.language as tl
from torch import nn

SUBMISSION = {"row": "L89", "type": "triton", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


@triton.jit
def softmax(x, out, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * COLUMNS
    values = tl.load(x + row + at, mask=at < COLUMNS, other=float("-inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + at, weights / tl.sum(weights, 0), mask=at < COLUMNS)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, COLUMNS=x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
