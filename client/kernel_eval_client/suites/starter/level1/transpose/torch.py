"""By torch's copy."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.empty(x.shape[1], x.shape[0], device=x.device).copy_(x.t())
