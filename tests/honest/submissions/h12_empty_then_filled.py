"""torch.empty, written in full."""

import torch
from torch import nn

SUBMISSION = {"row": "H12", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        half = x.shape[0] // 2
        out[:half] = torch.softmax(x[:half], -1)
        out[half:] = torch.softmax(x[half:], -1)
        return out
