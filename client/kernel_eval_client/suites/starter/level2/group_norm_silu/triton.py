"""A group of one image for each program, read once."""

import torch
import triton
import triton.language as tl


@triton.jit
def group_norm_silu(x, weight, bias, out, size, area, channels, groups, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + group * size + at, mask=inside, other=0.0)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / size, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / size + 1e-5)
    channel = (group % groups) * (channels // groups) + at // area
    y = centred * scale * tl.load(weight + channel, mask=inside) + tl.load(bias + channel, mask=inside)
    tl.store(out + group * size + at, y * tl.sigmoid(y), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, weight, bias):
        batch, channels, height, width = x.shape
        size, out = channels // self.groups * height * width, torch.empty_like(x)
        group_norm_silu[(batch * self.groups,)](
            x, weight, bias, out, size, height * width, channels, self.groups, BLOCK=triton.next_power_of_2(size)
        )
        return out
