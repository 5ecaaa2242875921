"""Sums in another order, with other last bits."""

from torch import nn

SUBMISSION = {"row": "H15", "type": "torch", "attacks": "normalised", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x / x.flip(-1).square().sum(-1, keepdim=True).sqrt()
