"""By torch's operator of that name."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        return F.rms_norm(x, (x.shape[1],), weight, 1e-6)
