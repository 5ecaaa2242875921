"""One call for the whole batch."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)
