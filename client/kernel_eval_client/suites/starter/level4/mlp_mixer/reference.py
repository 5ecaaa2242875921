"""Patches of images, mixed over places and over channels by turns."""

import math

import torch
from torch import nn

SIZES = {"batch": 32, "side": 224, "patch": 16, "width": 384, "classes": 1000}
SMALL = {"batch": 2, "side": 16, "patch": 4, "width": 24, "classes": 10}


class Mixer(nn.Module):
    def __init__(self, places, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up1, self.down1 = nn.Linear(places, 2 * places), nn.Linear(2 * places, places)
        self.up2, self.down2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.up1(self.norm1(x).transpose(1, 2).contiguous())
        y = self.down1(0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0))))
        x = x + y.transpose(1, 2).contiguous()
        y = self.up2(self.norm2(x))
        return x + self.down2(0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0))))


class Model(nn.Module):
    def __init__(self, side, patch, width, classes):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, width)
        self.mixers = nn.ModuleList([Mixer((side // patch) ** 2, width) for _ in range(3)])
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        size = self.patch
        patches = images.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5)
        x = self.embed(patches.reshape(images.shape[0], -1, 3 * size * size))
        for mixer in self.mixers:
            x = mixer(x)
        return self.head(x.mean(dim=1))


def get_inputs():
    return [torch.randn(SIZES["batch"], 3, SIZES["side"], SIZES["side"])]


def get_init_inputs():
    return [SIZES[name] for name in ("side", "patch", "width", "classes")]
