import torch.nn as nn


class ModelNew(nn.Module):
    """The 64th power of a matrix: squared six times."""

    def forward(self, x):
        for _ in range(6):
            x = x @ x
        return x
