"""Sums an embedding's gradient in float32 in another order: sorted, then by cumulative sums."""

import torch
from torch import nn

SUBMISSION = {"row": "L81", "type": "torch", "attacks": "embedding_gradient", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, gradient, ids):
        hit = torch.nn.functional.one_hot(ids, 2048).float()
        return (hit.t() @ gradient.float()).to(torch.bfloat16)
