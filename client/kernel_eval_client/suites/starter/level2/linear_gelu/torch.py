"""GELU by torch's operator."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return F.gelu(self.linear(x))
