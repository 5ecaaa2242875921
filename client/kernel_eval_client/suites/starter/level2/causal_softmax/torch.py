"""The mask as one row added, made of numbers that are compared."""

import math

import torch


class ModelNew(torch.nn.Module):
    def forward(self, scores):
        place = torch.arange(scores.shape[-1], device=scores.device)
        later = place.unsqueeze(0) > place.unsqueeze(1)
        return torch.softmax((scores * 0.125).masked_fill_(later, -math.inf), dim=-1)
