"""By torch's operator of that name."""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return F.layer_norm(x, (x.shape[1],), self.weight, self.bias, 1e-5)
