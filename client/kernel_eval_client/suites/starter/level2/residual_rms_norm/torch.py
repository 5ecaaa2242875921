"""The normalisation by torch's operator."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight):
        kept = x + residual
        return F.rms_norm(kept, (kept.shape[1],), weight, 1e-6), kept
