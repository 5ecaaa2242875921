"""A chain of five steps on each element."""

import torch

SIZES = {"n": 16777216}
SMALL = {"n": 3000}


class Model(torch.nn.Module):
    def forward(self, x):
        y = x * 2.0
        y = y + 1.0
        y = torch.clamp(y, -1.0, 3.0)
        y = y * y
        return y - 0.5


def get_inputs():
    return [torch.randn(SIZES["n"])]


def get_init_inputs():
    return []
