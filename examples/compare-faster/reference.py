import torch
import torch.nn as nn

N, POWER = 256, 64


class Model(nn.Module):
    """The 64th power of a matrix: 63 products."""

    def forward(self, x):
        result = x
        for _ in range(POWER - 1):
            result = result @ x
        return result


def get_inputs():
    return [torch.randn(N, N) / N**0.5]
