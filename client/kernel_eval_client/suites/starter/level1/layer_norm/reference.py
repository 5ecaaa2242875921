"""Layer normalisation with its weights."""

import torch
from torch import nn

SIZES = {"rows": 8192, "width": 2048}
SMALL = {"rows": 6, "width": 96}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        variance = (centred * centred).mean(dim=1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"])]


def get_init_inputs():
    return [SIZES["width"]]
