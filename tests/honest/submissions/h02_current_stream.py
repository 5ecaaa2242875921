"""Works on the stream that is current, by name."""

import torch
from torch import nn

SUBMISSION = {"row": "H2", "type": "torch", "attacks": "softmax", "expect": "H", "on": "gpu", "profile": True}


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.cuda.stream(torch.cuda.current_stream()):
            return torch.softmax(x, -1)
