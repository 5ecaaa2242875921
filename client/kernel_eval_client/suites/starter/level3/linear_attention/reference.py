"""Attention without softmax, every score made although none need be."""

import torch
from torch.nn import functional as F

SIZES = {"heads": 32, "length": 1024, "depth": 64}
SMALL = {"heads": 2, "length": 30, "depth": 8}


class Model(torch.nn.Module):
    def forward(self, query, key, value):
        query, key = F.elu(query) + 1.0, F.elu(key) + 1.0
        scores = query @ key.transpose(-1, -2)
        return (scores @ value) / scores.sum(dim=-1, keepdim=True)


def get_inputs():
    shape = (SIZES["heads"], SIZES["length"], SIZES["depth"])
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
