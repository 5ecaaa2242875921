"""Keeps its table of sines and cosines by shape and device."""

import torch
from torch import nn

SUBMISSION = {"row": "H7", "type": "torch", "attacks": "rotated", "expect": "H", "on": "cpu gpu"}

tables = {}


def table(rows, half, x):
    key = (rows, half, x.device, x.dtype)
    if key not in tables:
        at = torch.arange(rows, device=x.device, dtype=x.dtype)
        angle = at[:, None] / 10000 ** (torch.arange(half, device=x.device, dtype=x.dtype) / half)
        tables[key] = angle.cos(), angle.sin()
    return tables[key]


class ModelNew(nn.Module):
    def forward(self, x):
        half = x.shape[-1] // 2
        cos, sin = table(x.shape[0], half, x)
        left, right = x.split(half, -1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)
