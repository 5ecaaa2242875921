"""A table of constants, built once."""

import torch
from torch import nn

SUBMISSION = {"row": "H7", "type": "torch", "attacks": "row_sum", "expect": "H", "on": "cpu"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ones = torch.ones(4096)

    def forward(self, x):
        return (x.double() @ self.ones.double().to(x.device)).float()
