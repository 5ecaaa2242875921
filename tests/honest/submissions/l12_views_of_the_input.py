"""Every answer is a view of the input: transposed, with gaps, with an offset."""

from torch import nn

SUBMISSION = {"row": "L12", "type": "torch", "attacks": "views", "expect": "HF", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1), x[:, ::2], x.narrow(0, 1, x.shape[0] - 1)
