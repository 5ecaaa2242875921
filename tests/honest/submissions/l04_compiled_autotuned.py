"""Compiled with autotuning and CUDA graphs, whose answers the next call overwrites."""

import torch
from torch import nn

SUBMISSION = {
    "row": "L4",
    "type": "torch",
    "attacks": "softmax",
    "expect": "H",
    "on": "cpu gpu",
    "slow": True,
    "timeout": 180,
}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(self.softmax, mode="max-autotune")

    @staticmethod
    def softmax(x):
        return torch.softmax(x, -1)

    def forward(self, x):
        return self.compiled(x)
