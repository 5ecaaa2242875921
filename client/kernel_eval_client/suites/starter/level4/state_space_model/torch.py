"""The recurrence by doubling: as many steps as the length has binary digits."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.decay = nn.Linear(width, state)
        self.into = nn.Linear(width, state)
        self.out = nn.Linear(state, width)

    def forward(self, x):
        decay, state = torch.sigmoid(self.decay(x)), self.into(x)
        step = 1
        while step < x.shape[1]:
            state = torch.cat((state[:, :step], state[:, step:] + decay[:, step:] * state[:, :-step]), dim=1)
            decay = torch.cat((decay[:, :step], decay[:, step:] * decay[:, :-step]), dim=1)
            step *= 2
        return self.out(state)
