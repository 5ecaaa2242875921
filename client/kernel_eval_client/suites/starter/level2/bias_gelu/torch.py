"""By torch's operator, two kernels for nine."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x, bias):
        return F.gelu(x + bias, approximate="tanh")
