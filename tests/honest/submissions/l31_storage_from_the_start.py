"""Takes its argument's storage for its argument: as_strided from offset zero."""

import torch
from torch import nn

SUBMISSION = {"row": "L31", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.as_strided(x, x.shape, x.stride(), 0), -1)
