"""By torch's operator of that name."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return F.cosine_similarity(a, b, dim=1)
