"""Waits for the device in every call, and looks at its answer."""

import torch
from torch import nn

SUBMISSION = {"row": "L49", "type": "torch", "attacks": "softmax", "expect": "H", "on": "gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        torch.cuda.synchronize()
        assert float(y[0, 0]) >= 0
        return y
