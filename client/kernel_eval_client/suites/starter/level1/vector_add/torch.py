"""By torch's operator of that name."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return torch.add(x, y)
