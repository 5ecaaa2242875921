"""torch for views and concatenation around a kernel of its own."""

import torch
import triton
import triton.language as tl
from torch import nn

SUBMISSION = {"row": "H23", "type": "torch", "attacks": "axpb", "expect": "H", "on": "cpu gpu", "profile": True}


@triton.jit
def axpb(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.reshape(-1)
        out = torch.empty_like(flat)
        axpb[(triton.cdiv(flat.numel(), 1024),)](flat, out, flat.numel(), BLOCK=1024)
        return torch.cat([out[:7], out[7:]]).view(x.shape)
