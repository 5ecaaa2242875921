"""A complex answer that torch only notes as conjugated."""

import torch
from torch import nn

SUBMISSION = {"row": "L33", "type": "torch", "attacks": "spectrum", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.conj(torch.fft.ifft(x) * x.shape[-1])
