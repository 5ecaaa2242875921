"""SiLU by torch's operator, multiplied in place."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x):
        gate, up = x.chunk(2, dim=1)
        return F.silu(gate).mul_(up)
