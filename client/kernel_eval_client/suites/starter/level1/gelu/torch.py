"""By torch's operator, one kernel for four."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return F.gelu(x)
