"""SiLU by torch's operator, in place."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x), inplace=True).mul_(self.up(x)))
