"""Times its variants at the first call for a shape, all of them right, and keeps the fastest."""

import time

import torch
from torch import nn

SUBMISSION = {"row": "L90", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


def in_one(x):
    return torch.softmax(x, -1)


def in_steps(x):
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


chosen = {}


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape not in chosen:
            times = {}
            for variant in (in_one, in_steps):
                began = time.perf_counter()
                variant(x)
                if x.is_cuda:
                    torch.cuda.synchronize()
                times[variant] = time.perf_counter() - began
            chosen[x.shape] = min(times, key=times.get)
        return chosen[x.shape](x)
