"""A recurrence over time between two linear layers, step by step."""

import torch
from torch import nn

SIZES = {"batch": 16, "length": 512, "width": 256, "state": 512}
SMALL = {"batch": 2, "length": 20, "width": 8, "state": 16}


class Model(nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.decay = nn.Linear(width, state)
        self.into = nn.Linear(width, state)
        self.out = nn.Linear(state, width)

    def forward(self, x):
        decay, drive = torch.sigmoid(self.decay(x)), self.into(x)
        state, states = torch.zeros_like(drive[:, 0]), []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + drive[:, step]
            states.append(state)
        return self.out(torch.stack(states, dim=1))


def get_inputs():
    return [torch.randn(SIZES["batch"], SIZES["length"], SIZES["width"])]


def get_init_inputs():
    return [SIZES["width"], SIZES["state"]]
