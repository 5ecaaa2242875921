"""Takes numbers, flags, lists, dicts and nothing beside its tensor."""

import torch
from torch import nn

SUBMISSION = {"row": "L52", "type": "torch", "attacks": "arguments", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x, times, flag, sizes, options, nothing, scale: float = 2.0):
        assert nothing is None and flag is True and options["of"] == [1]
        y = x.contiguous().view(*sizes)
        return torch.einsum("ij->i", torch.add(y * times, options["bias"])).mul_(scale)
