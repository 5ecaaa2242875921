"""Tens of milliseconds a call."""

import torch
from torch import nn

SUBMISSION = {"row": "L34", "type": "torch", "attacks": "slow", "expect": "H", "on": "cpu gpu", "slow": True}


class ModelNew(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(1500):
            y = torch.add(y, x).cos_()
        return y
