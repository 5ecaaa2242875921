"""Halves are done by threads that it waits for."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

SUBMISSION = {"row": "T3", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

pool = ThreadPoolExecutor(2)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat(list(pool.map(lambda part: torch.softmax(part, -1), x.chunk(2))))
