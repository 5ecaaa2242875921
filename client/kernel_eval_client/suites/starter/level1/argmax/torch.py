"""Without sorting."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)
