"""The ReLU of negative numbers is zero, computed."""

from torch import nn

SUBMISSION = {"row": "H19", "type": "torch", "attacks": "relu", "expect": "HF", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
