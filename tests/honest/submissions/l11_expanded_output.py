"""Answers with an expanded row: many elements, one in memory."""

from torch import nn

SUBMISSION = {"row": "L11", "type": "torch", "attacks": "expanded", "expect": "HF", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sum(0).expand(x.shape)
