"""A library's matrix product, where the type allows it."""

import torch
from torch import nn

SUBMISSION = {"row": "H24", "type": "torch", "attacks": "matmul", "expect": "H", "on": "cpu gpu", "profile": True}


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.mm(x, y)
