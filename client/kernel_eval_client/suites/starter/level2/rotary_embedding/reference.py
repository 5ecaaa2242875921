"""Rotary position embedding: rotates each pair of elements (i, i + half) by the angle of its position."""

import torch

SIZES = {"heads": 128, "length": 2048, "half": 64}
SMALL = {"heads": 3, "length": 10, "half": 8}


class Model(torch.nn.Module):
    def forward(self, x, cosine, sine):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * torch.cat((cosine, cosine), dim=-1) + turned * torch.cat((sine, sine), dim=-1)


def get_inputs():
    length, half = SIZES["length"], SIZES["half"]
    x = torch.randn(SIZES["heads"], length, 2 * half)
    angles = torch.rand(length, half) * 6.28
    return [x, torch.cos(angles), torch.sin(angles)]


def get_init_inputs():
    return []
