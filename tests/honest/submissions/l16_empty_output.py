"""One of its outputs has no elements."""

from torch import nn

SUBMISSION = {"row": "L16", "type": "torch", "attacks": "nothing", "expect": "HF", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.new_empty((0, x.shape[1])), x + x
