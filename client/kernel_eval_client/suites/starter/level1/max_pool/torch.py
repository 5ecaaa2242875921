"""By torch's operator of that name."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 2)
