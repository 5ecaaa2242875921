"""RMS normalisation, the weight an input."""

import torch

SIZES = {"rows": 8192, "width": 4096}
SMALL = {"rows": 6, "width": 100}


class Model(torch.nn.Module):
    def forward(self, x, weight):
        return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-6) * weight


def get_inputs():
    return [torch.randn(SIZES["rows"], SIZES["width"]), torch.randn(SIZES["width"])]


def get_init_inputs():
    return []
