"""Both by torch's operators."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, weight, bias):
        return F.silu(F.group_norm(x, self.groups, weight, bias, 1e-5), inplace=True)
