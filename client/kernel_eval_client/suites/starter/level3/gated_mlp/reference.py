"""A SiLU gate on the hidden layer of two linear ones."""

import torch
from torch import nn

SIZES = {"rows": 4096, "width": 1024, "hidden": 2816}
SMALL = {"rows": 10, "width": 24, "hidden": 40}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"])]


def get_init_inputs():
    return [SIZES["width"], SIZES["hidden"]]
