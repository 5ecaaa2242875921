"""As a convolution in as many groups as channels."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x, taps):
        channels, count = taps.shape
        return F.conv1d(x, taps.unsqueeze(1), padding=count // 2, groups=channels)
