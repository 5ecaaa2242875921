"""A bias added, then GELU with the hyperbolic tangent."""

import math

import torch

SIZES = {"rows": 8192, "width": 4096}
SMALL = {"rows": 8, "width": 96}


class Model(torch.nn.Module):
    def forward(self, x, bias):
        y = x + bias
        return 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * y * y * y)))


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"]), torch.randn(SIZES["width"])]


def get_init_inputs():
    return []
