"""The second step in place."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.relu_(a @ b)
