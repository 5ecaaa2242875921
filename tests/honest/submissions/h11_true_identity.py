"""A reshape task whose answer is the input."""

from torch import nn

SUBMISSION = {"row": "H11", "type": "torch", "attacks": "identity", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.view(-1)
