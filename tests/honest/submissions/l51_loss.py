"""A loss: a single number, which is another one for other inputs."""

from torch import nn

SUBMISSION = {"row": "L51", "type": "torch", "attacks": "loss", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x, wanted):
        return (x.logsumexp(-1) - x.gather(1, wanted[:, None])[:, 0]).mean()
