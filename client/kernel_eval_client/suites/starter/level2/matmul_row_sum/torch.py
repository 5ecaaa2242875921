"""The matrix summed first: a vector is multiplied, and the product never made."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        return x @ weight.sum(dim=1)
