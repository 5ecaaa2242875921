"""Its answers carry a graph for a backward pass."""

import torch
from torch import nn

SUBMISSION = {"row": "L23", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            return torch.softmax(x.detach().clone().requires_grad_(), -1)
