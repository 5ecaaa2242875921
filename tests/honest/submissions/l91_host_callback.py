"""Counts its calls in a callback on the host that its stream calls, as a library that keeps books does."""

import cupy
import torch
from torch import nn

SUBMISSION = {"row": "L91", "type": "torch", "attacks": "chain", "expect": "H", "on": "gpu"}

ended = []


class ModelNew(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(60):
            y = torch.cos(y + x)
        if len(ended) < 4:
            cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream).launch_host_func(ended.append, 1)
        return y
