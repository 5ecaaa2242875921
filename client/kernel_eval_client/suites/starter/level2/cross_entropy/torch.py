"""By torch's operator of that name."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target)
