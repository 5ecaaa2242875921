import torch.nn as nn


class ModelNew(nn.Module):
    """A B v, from the right: twice a matrix times a vector."""

    def forward(self, a, b, v):
        return a @ (b @ v)
