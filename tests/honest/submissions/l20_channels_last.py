"""Computes in channels-last, and answers so."""

import torch
from torch import nn

SUBMISSION = {"row": "L20", "type": "torch", "attacks": "convolution", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.convolution(x.to(memory_format=torch.channels_last)).relu_()
