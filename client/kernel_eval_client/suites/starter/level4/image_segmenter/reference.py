"""An encoder and a decoder of convolutions with a bridge between them."""

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {"batch": 8, "width": 32, "classes": 21, "side": 128}
SMALL = {"batch": 1, "width": 4, "classes": 3, "side": 16}


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.down1 = nn.Conv2d(3, width, 3, padding=1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up2 = nn.Conv2d(4 * width, width, 3, padding=1)
        self.up1 = nn.Conv2d(2 * width, width, 3, padding=1)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        first = torch.relu(self.down1(x))
        second = torch.relu(self.down2(F.max_pool2d(first, 2)))
        x = torch.relu(self.middle(F.max_pool2d(second, 2)))
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        x = torch.relu(self.up2(torch.cat((x, second), dim=1)))
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        x = torch.relu(self.up1(torch.cat((x, first), dim=1)))
        return self.head(x)


def get_inputs():
    return [torch.randn(SIZES["batch"], 3, SIZES["side"], SIZES["side"])]


def get_init_inputs():
    return [SIZES["width"], SIZES["classes"]]
