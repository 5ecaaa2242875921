"""Each channel folded with taps of its own."""

import torch
from torch.nn import functional as F

SIZES = {"batch": 16, "channels": 512, "length": 2048, "taps": 5}
SMALL = {"batch": 2, "channels": 3, "length": 40, "taps": 5}


class Model(torch.nn.Module):
    def forward(self, x, taps):
        count = taps.shape[1]
        padded = F.pad(x, (count // 2, count // 2))
        length = x.shape[2]
        return sum(padded[:, :, i : i + length] * taps[:, i].unsqueeze(1) for i in range(count))


def get_inputs():
    x = torch.randn(SIZES["batch"], SIZES["channels"], SIZES["length"])
    return [x, torch.randn(SIZES["channels"], SIZES["taps"])]


def get_init_inputs():
    return []
