"""Its answers are inference tensors."""

import torch
from torch import nn

SUBMISSION = {"row": "L22", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.inference_mode():
            return torch.softmax(x, -1)
