"""Under autocast as its reference is."""

import torch
from torch import nn

SUBMISSION = {"row": "L21", "type": "torch", "attacks": "autocast", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return torch.mm(x, x.t())
