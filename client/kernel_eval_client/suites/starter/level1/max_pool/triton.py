"""A block of outputs for each program."""

import torch
import triton
import triton.language as tl


@triton.jit
def max_pool(x, out, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    half = width // 2
    corner = x + (at // half) * 2 * width + (at % half) * 2
    top = tl.maximum(tl.load(corner, mask=inside), tl.load(corner + 1, mask=inside))
    bottom = tl.maximum(tl.load(corner + width, mask=inside), tl.load(corner + width + 1, mask=inside))
    tl.store(out + at, tl.maximum(top, bottom), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        batch, planes, height, width = x.shape
        out = torch.empty(batch, planes, height // 2, width // 2, device=x.device)
        max_pool[(triton.cdiv(out.numel(), 512),)](x, out, out.numel(), width, BLOCK=512)
        return out
