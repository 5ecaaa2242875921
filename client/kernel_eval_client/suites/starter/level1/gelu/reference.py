"""GELU with the error function."""

import math

import torch

SIZES = {"rows": 4096, "width": 4096}
SMALL = {"rows": 8, "width": 128}


class Model(torch.nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"])]


def get_init_inputs():
    return []
