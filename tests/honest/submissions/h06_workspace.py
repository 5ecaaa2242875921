"""Keeps a scratch buffer between calls, and answers in memory of its own."""

import torch
from torch import nn

SUBMISSION = {"row": "H6", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}

workspace = {}


class ModelNew(nn.Module):
    def forward(self, x):
        scratch = workspace.setdefault(x.shape, torch.empty_like(x))
        torch.sub(x, x.amax(-1, keepdim=True), out=scratch)
        scratch.exp_()
        return scratch / scratch.sum(-1, keepdim=True)
