"""Two linear layers with GELU between them and a residual around."""

import math

import torch
from torch import nn

SIZES = {"rows": 4096, "width": 1024, "hidden": 4096}
SMALL = {"rows": 10, "width": 24, "hidden": 40}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        y = self.up(x)
        y = 0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0)))
        return x + self.down(y)


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"])]


def get_init_inputs():
    return [SIZES["width"], SIZES["hidden"]]
