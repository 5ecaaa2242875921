"""Compiled by inductor at its first call."""

import torch
from torch import nn

SUBMISSION = {
    "row": "L3",
    "type": "torch",
    "attacks": "softmax",
    "expect": "H",
    "on": "cpu gpu",
    "slow": True,
    "timeout": 180,
}


@torch.compile
def softmax(x):
    return torch.softmax(x, -1)


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
