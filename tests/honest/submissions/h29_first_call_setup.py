"""Makes its tables in its first call."""

import torch
from torch import nn

SUBMISSION = {"row": "H29", "type": "torch", "attacks": "cumsum", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._calls = 0

    def forward(self, x):
        if not self._calls:
            self._offset = torch.zeros((), device=x.device)
        self._calls += 1
        return torch.cumsum(x, -1) + self._offset
