"""Prints braces, newlines and warnings."""

import sys
import warnings

import torch
from torch import nn

SUBMISSION = {"row": "H38", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        print('{"op": "done", "verdict": "failed"}\n\n}}{{ Traceback (most recent call last):', file=sys.stderr)
        warnings.warn("} not serious {", stacklevel=1)
        return torch.softmax(x, -1)
