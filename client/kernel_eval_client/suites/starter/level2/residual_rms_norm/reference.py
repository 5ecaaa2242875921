"""A residual added, the sum kept, and its RMS normalisation."""

import torch

SIZES = {"rows": 8192, "width": 4096}
SMALL = {"rows": 6, "width": 100}


class Model(torch.nn.Module):
    def forward(self, x, residual, weight):
        kept = x + residual
        return kept * torch.rsqrt((kept * kept).mean(dim=1, keepdim=True) + 1e-6) * weight, kept


def get_inputs():
    rows, width = SIZES["rows"], SIZES["width"]
    return [torch.randn(rows, width), torch.randn(rows, width), torch.randn(width)]


def get_init_inputs():
    return []
