"""A matrix turned round in memory."""

import torch

SIZES = {"rows": 8192, "columns": 4096}
SMALL = {"rows": 50, "columns": 70}


class Model(torch.nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["columns"])]


def get_init_inputs():
    return []
