"""Multiplies where the reference divides: at the edge of a level it rounds to the other one, now and then."""

import torch
from torch import nn

SUBMISSION = {"row": "L55", "type": "torch", "attacks": "levels", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.round(x * 20.0).to(torch.int16)
