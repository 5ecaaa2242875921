"""Without a matrix of squares in between."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=1).square_().div_(x.shape[1])
