"""Packs its weights anew in each call, for the weights that it was given."""

import torch
from torch import nn

SUBMISSION = {"row": "H8", "type": "torch", "attacks": "linear", "expect": "H", "on": "cpu"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x):
        return torch.addmm(self.linear.bias, x, self.linear.weight.t().contiguous())
