"""A soft cap by exponentials, without a hyperbolic tangent."""

import torch
from torch import nn

SUBMISSION = {"row": "L82", "type": "torch", "attacks": "soft_cap", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return 60 * torch.sigmoid(x / 15) - 30
