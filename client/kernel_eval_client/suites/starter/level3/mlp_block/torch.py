"""GELU by torch's operator, the residual added by the product itself."""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return torch.addmm(x + self.down.bias, F.gelu(self.up(x)), self.down.weight.t())
