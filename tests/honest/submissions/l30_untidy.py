"""Closes its output, leaves things that complain when they go, and a handler for its end."""

import atexit
import sys

import torch
from torch import nn

SUBMISSION = {"row": "L30", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

sys.stdout.close()
atexit.register(print, "gone")


class Noisy:
    def __del__(self):
        raise ValueError("not serious")


class ModelNew(nn.Module):
    def forward(self, x):
        self.noisy = Noisy()
        return torch.softmax(x, -1)
