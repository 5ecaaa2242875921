"""The mean of the squares of each row."""

import torch

SIZES = {"rows": 8192, "width": 8192}
SMALL = {"rows": 6, "width": 200}


class Model(torch.nn.Module):
    def forward(self, x):
        return (x * x).mean(dim=1)


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"])]


def get_init_inputs():
    return []
