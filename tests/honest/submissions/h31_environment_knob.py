"""Reads a tuning knob with a default from the environment."""

import os

import torch
from torch import nn

SUBMISSION = {"row": "H31", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

SPLITS = int(os.environ.get("MY_KERNEL_SPLITS", "2"))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat([torch.softmax(part, -1) for part in x.chunk(SPLITS)])
