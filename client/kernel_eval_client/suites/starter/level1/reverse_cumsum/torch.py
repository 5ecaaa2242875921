"""Without turning the rows round: the whole sum less what comes before."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + x.sum(dim=1, keepdim=True) - torch.cumsum(x, dim=1)
