"""The normalisation folded into the convolutions' weights."""

import torch
from torch import nn
from torch.nn import functional as F


def folded(x, conv, norm):
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    weight = conv.weight * scale.reshape(-1, 1, 1, 1)
    return F.conv2d(x, weight, norm.bias - norm.running_mean * scale, padding=1)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.eval()

    def forward(self, x):
        y = torch.relu_(folded(x, self.conv1, self.norm1))
        return torch.relu_(folded(y, self.conv2, self.norm2).add_(x))
