"""Not a number and infinite where the reference is."""

import torch
from torch import nn

SUBMISSION = {"row": "L18", "type": "torch", "attacks": "masked", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.masked_fill(x <= 0, float("-inf")), torch.log2(x) * 0.6931471805599453
