"""Infinite where the reference is."""

from torch import nn

SUBMISSION = {"row": "C27", "type": "torch", "attacks": "reciprocal", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min=0).reciprocal()
