"""Ten times as fast as its reference, rightly."""

import torch
from torch import nn

SUBMISSION = {"row": "H34", "type": "torch", "attacks": "pairwise", "expect": "H", "on": "cpu gpu", "profile": True}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cdist(x, x, p=1).t()
