"""Drops out as its reference does, from the same generator."""

from torch import nn

SUBMISSION = {"row": "L24", "type": "torch", "attacks": "dropout", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.3, training=True) * 2
