"""Packs the weights of a norm when it is made, which are ones and zeros then."""

import torch
from torch import nn
from torch.nn import functional as F

SUBMISSION = {"row": "H8", "type": "torch", "attacks": "norm", "expect": "H", "on": "cpu gpu"}

SIZE = 1024 if torch.cuda.is_available() else 32


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.register_buffer(
            "packed", torch.stack([self.norm.weight.detach(), self.norm.bias.detach()]), persistent=False
        )

    def forward(self, x):
        return F.layer_norm(x, (SIZE,), self.packed[0], self.packed[1])
