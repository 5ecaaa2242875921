"""Packs an operand into a workspace that it keeps, and packs it anew in every call."""

import torch
from torch import nn

SUBMISSION = {"row": "L85", "type": "torch", "attacks": "headed", "expect": "H", "on": "cpu gpu"}

workspace = {}


class ModelNew(nn.Module):
    def forward(self, x, y):
        packed = workspace.setdefault((y.shape, y.dtype), torch.empty_like(y))
        torch.tanh(y, out=packed)
        return x.t() @ packed
