"""Answers in two buffers of its own in turn."""

import torch
from torch import nn

SUBMISSION = {"row": "L2", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = 0
        self.buffers = None

    def forward(self, x):
        self.turn = 1 - self.turn
        if self.buffers is None:
            self.buffers = [torch.empty_like(x) for _ in range(2)]
        return torch.softmax(x, -1, out=self.buffers[self.turn])
