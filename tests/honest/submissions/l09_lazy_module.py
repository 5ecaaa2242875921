"""A lazy layer, whose weights have no shape before the first call."""

import torch
from torch import nn

SUBMISSION = {"row": "L9", "type": "torch", "attacks": "linear", "expect": "H", "on": "cpu gpu"}

SIZE = 1024 if torch.cuda.is_available() else 32


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.LazyLinear(SIZE)

    def forward(self, x):
        return self.linear(x)
