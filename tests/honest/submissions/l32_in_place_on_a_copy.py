"""Works in place on a copy, and answers with it."""

from torch import nn

SUBMISSION = {"row": "L32", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        y.sub_(y.amax(-1, keepdim=True)).exp_()
        return y.div_(y.sum(-1, keepdim=True))
