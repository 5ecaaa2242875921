"""Tries an optional library, and says pass where it is not there."""

import torch
from torch import nn

SUBMISSION = {"row": "H21", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

try:
    import library_that_is_optional
except ImportError:
    library_that_is_optional = None


class NotThereError(Exception):
    """Nothing to add: pass."""


class ModelNew(nn.Module):
    def forward(self, x):
        if library_that_is_optional is not None:
            raise NotThereError
        return torch.softmax(x, -1)
