"""The weights are broadcast, and never spread out in memory."""

from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.down = nn.Linear(channels, squeezed)
        self.up = nn.Linear(squeezed, channels)

    def forward(self, x):
        weights = self.up(F.relu(self.down(x.flatten(2).mean(dim=2)), inplace=True)).sigmoid_()
        return x * weights[:, :, None, None]
