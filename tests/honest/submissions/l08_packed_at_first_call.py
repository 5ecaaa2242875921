"""Packs the weights that it was given at its first call, once."""

import torch
from torch import nn

SUBMISSION = {"row": "H8", "type": "torch", "attacks": "linear", "expect": "H", "on": "cpu gpu"}

SIZE = 1024 if torch.cuda.is_available() else 32


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.linear.weight.detach().t().contiguous()
        return torch.addmm(self.linear.bias, x, self.packed)
