"""Keys and values multiplied first: linear in the length."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, query, key, value):
        query, key = F.elu(query) + 1.0, F.elu(key) + 1.0
        mixed = query @ (key.transpose(-1, -2) @ value)
        return mixed / (query @ key.sum(dim=1).unsqueeze(-1))
