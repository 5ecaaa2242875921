"""Indices, a mask and small integers, found in another way."""

import torch
from torch import nn

SUBMISSION = {"row": "L15", "type": "torch", "attacks": "indices", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sort(x, -1).indices, torch.gt(x, 0), x.mul(10).to(torch.int8)
