"""The convolution by torch, both other steps in one pass."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_pool(x, out, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    half = width // 2
    corner = x + (at // half) * 2 * width + (at % half) * 2
    top = tl.maximum(tl.load(corner, mask=inside), tl.load(corner + 1, mask=inside))
    bottom = tl.maximum(tl.load(corner + width, mask=inside), tl.load(corner + width + 1, mask=inside))
    tl.store(out + at, tl.maximum(tl.maximum(top, bottom), 0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = torch.nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x):
        y = self.conv(x).contiguous()
        batch, planes, height, width = y.shape
        out = torch.empty(batch, planes, height // 2, width // 2, device=y.device)
        relu_pool[(triton.cdiv(out.numel(), 512),)](y, out, out.numel(), width, BLOCK=512)
        return out
