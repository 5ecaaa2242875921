"""The maximum first, so that a quarter of the elements is looked at after it."""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x):
        return torch.relu_(F.max_pool2d(self.conv(x), 2))
