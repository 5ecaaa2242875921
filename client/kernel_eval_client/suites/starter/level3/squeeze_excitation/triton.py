"""A plane for each program, twice: its mean, then its weight."""

import torch
import triton
import triton.language as tl


@triton.jit
def plane_mean(x, out, area, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    tl.store(out + plane, tl.sum(tl.load(x + plane * area + at, mask=at < area, other=0.0), axis=0) / area)


@triton.jit
def plane_weigh(x, weight, out, area, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + plane * area + at, mask=at < area)
    tl.store(out + plane * area + at, value * tl.sigmoid(tl.load(weight + plane)), mask=at < area)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.down = torch.nn.Linear(channels, squeezed)
        self.up = torch.nn.Linear(squeezed, channels)

    def forward(self, x):
        batch, channels, height, width = x.shape
        area, planes = height * width, batch * channels
        block = triton.next_power_of_2(area)
        means, out = torch.empty(batch, channels, device=x.device), torch.empty_like(x)
        plane_mean[(planes,)](x, means, area, BLOCK=block)
        plane_weigh[(planes,)](x, self.up(torch.relu(self.down(means))), out, area, BLOCK=block)
        return out
