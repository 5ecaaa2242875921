"""Keeps its launch configuration by shape and dtype."""

import torch
from torch import nn

SUBMISSION = {"row": "H5", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

cache = {}


def configured(x):
    key = (tuple(x.shape), x.dtype)
    if key not in cache:
        cache[key] = {"dim": len(key[0]) - 1}
    return cache[key]


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, **configured(x))
