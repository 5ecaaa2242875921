"""Sums an embedding's gradient in float32 in another order: sorted by rows."""

import torch
from torch import nn

SUBMISSION = {"row": "L81", "type": "torch", "attacks": "embedding_gradient", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, gradient, ids):
        ids, order = ids.sort()
        summed = torch.zeros(65536, gradient.shape[1], device=gradient.device)
        return summed.index_add_(0, ids, gradient[order].float()).to(torch.bfloat16)
