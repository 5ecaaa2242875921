"""Packs its weights when it is made, under a name of its own: they come from the same seed."""

import torch
from torch import nn

SUBMISSION = {"row": "H8", "type": "torch", "attacks": "linear", "expect": "H", "on": "cpu gpu"}

SIZE = 1024 if torch.cuda.is_available() else 32


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        linear = nn.Linear(SIZE, SIZE)
        self.packed = nn.Parameter(linear.weight.detach().t().contiguous())
        self.bias = linear.bias

    def forward(self, x):
        return torch.addmm(self.bias, x, self.packed)
