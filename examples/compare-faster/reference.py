import torch
import torch.nn as nn

N = 1024


class Model(nn.Module):
    """A B v, from the left: a product of two matrices, then a matrix times a vector."""

    def forward(self, a, b, v):
        return (a @ b) @ v


def get_inputs():
    return [torch.randn(N, N) / N**0.5, torch.randn(N, N) / N**0.5, torch.randn(N, 1)]
