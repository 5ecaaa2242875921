"""Scripted, and mapped over rows."""

import torch
from torch import nn

SUBMISSION = {"row": "L27", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


@torch.jit.script
def softmax(row):
    return torch.softmax(row, -1)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.vmap(softmax)(x)
