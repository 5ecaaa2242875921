"""Two right ways, chosen by the shape."""

import torch
from torch import nn

SUBMISSION = {"row": "H16", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[-1] <= 512:
            return torch.softmax(x, -1)
        return (x - torch.logsumexp(x, -1, keepdim=True)).exp()
