"""Computes with numpy and answers with its memory."""

import numpy
import torch
from torch import nn

SUBMISSION = {"row": "L14", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        powers = numpy.exp(x.numpy() - x.numpy().max(-1, keepdims=True))
        return torch.from_numpy(powers / powers.sum(-1, keepdims=True))
