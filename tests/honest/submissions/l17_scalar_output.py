"""Answers with a single number of no dimension."""

import torch
from torch import nn

SUBMISSION = {"row": "L17", "type": "torch", "attacks": "scalar", "expect": "HF", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.dot(x.flatten(), x.flatten())
