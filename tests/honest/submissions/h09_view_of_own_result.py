"""Answers with a transposed view of what it computed."""

import torch
from torch import nn

SUBMISSION = {"row": "H9", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.t(), 0).t()
