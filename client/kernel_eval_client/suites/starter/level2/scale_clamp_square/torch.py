"""Four of the steps in place."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return (x * 2.0).add_(1.0).clamp_(-1.0, 3.0).square_().sub_(0.5)
