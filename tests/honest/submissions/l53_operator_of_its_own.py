"""Registers an operator of its own with torch, with a gradient, and calls that."""

import torch
from torch import nn

SUBMISSION = {"row": "L53", "type": "torch", "attacks": "softmax", "expect": "H", "on": "cpu gpu"}


@torch.library.custom_op("l53::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = (x - x.amax(-1, keepdim=True)).exp()
    return shifted / shifted.sum(-1, keepdim=True)


@softmax.register_fake
def _(x):
    return torch.empty_like(x)


def backward(context, gradient):
    (y,) = context.saved_tensors
    return y * (gradient - (gradient * y).sum(-1, keepdim=True))


softmax.register_autograd(backward, setup_context=lambda context, inputs, output: context.save_for_backward(output))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.l53.softmax(x)
