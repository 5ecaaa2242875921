"""A ReLU's step backwards by what its step forwards answered, which it is given beside the input."""

from torch import nn

SUBMISSION = {"row": "L57", "type": "torch", "attacks": "backwards", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x, y, g):
        return g * (y > 0)
