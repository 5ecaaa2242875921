"""Answers with a dataclass where the reference has a dict."""

import dataclasses

import torch
from torch import nn

SUBMISSION = {"row": "L13", "type": "torch", "attacks": "nested", "expect": "H", "on": "cpu gpu"}


@dataclasses.dataclass
class Answer:
    twice: torch.Tensor
    rows: tuple


class ModelNew(nn.Module):
    def forward(self, x):
        return Answer(x + x, (x.max(-1).values, None))
