"""Changes its input where the reference does it too."""

from torch import nn

SUBMISSION = {"row": "C13", "type": "torch", "attacks": "in_place", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.add_(x)
