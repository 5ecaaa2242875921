"""Switches that change what torch and Python do everywhere in its process."""

import gc
import sys
import warnings

import torch
from torch import nn

SUBMISSION = {"row": "L28", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
warnings.simplefilter("error")
gc.disable()
sys.setrecursionlimit(5000)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
