"""The normalisation folded into the weights, sums and maxima in place."""

import torch
from torch import nn
from torch.nn import functional as F


def folded(x, conv, norm, stride):
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    weight = conv.weight * scale.reshape(-1, 1, 1, 1)
    return F.conv2d(x, weight, norm.bias - norm.running_mean * scale, stride=stride, padding=1)


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)

    def forward(self, x):
        y = torch.relu_(folded(x, self.conv1, self.norm1, 2))
        return torch.relu_(folded(y, self.conv2, self.norm2, 1).add_(self.short(x)))


class ModelNew(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList([Block(width << level, width << level + 1) for level in range(3)])
        self.head = nn.Linear(8 * width, classes)
        self.eval()

    def forward(self, x):
        x = torch.relu_(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))
