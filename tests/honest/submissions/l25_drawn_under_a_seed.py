"""Draws under a seed that its reference names."""

import torch
from torch import nn

SUBMISSION = {"row": "L25", "type": "torch", "attacks": "drawn", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        torch.manual_seed(3)
        return torch.randn_like(x).add_(x)
