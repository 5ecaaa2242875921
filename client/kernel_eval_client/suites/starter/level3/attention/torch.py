"""By torch's operator, which need not keep the scores."""

import torch
from torch.nn import functional as F


class ModelNew(torch.nn.Module):
    def forward(self, query, key, value):
        return F.scaled_dot_product_attention(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)).squeeze(0)
