"""Comes with the task's own reference and inputs in its file, as KernelBench's solutions do."""

import torch
from torch import nn

SUBMISSION = {"row": "L84", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


class ModelNew(nn.Module):
    def forward(self, x):
        return (x - torch.logsumexp(x, -1, keepdim=True)).exp()


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
