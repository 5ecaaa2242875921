"""A function of its own with a gradient, and a parameter subclass, both inside only."""

import torch
from torch import nn

SUBMISSION = {"row": "H25", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return torch.softmax(x, -1)


class Named(nn.Parameter):
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
