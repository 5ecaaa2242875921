"""An algebraic simplification that holds for all inputs."""

import torch
from torch import nn

SUBMISSION = {"row": "H35", "type": "torch", "attacks": "affine", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.add(x + 1, x)
