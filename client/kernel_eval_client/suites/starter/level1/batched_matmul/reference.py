"""A product for each matrix of a batch."""

import torch

SIZES = {"batch": 64, "m": 256, "k": 256, "n": 256}
SMALL = {"batch": 3, "m": 24, "k": 32, "n": 40}


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.stack([left @ right for left, right in zip(a, b, strict=True)])


def get_inputs():
    batch, m, k, n = (SIZES[name] for name in ("batch", "m", "k", "n"))
    return [torch.randn(batch, m, k), torch.randn(batch, k, n)]


def get_init_inputs():
    return []
