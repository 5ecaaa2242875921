"""bfloat16 in and out, float32 within."""

from torch import nn

SUBMISSION = {"row": "L19", "type": "torch", "attacks": "bfloat16", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.float()
        powers = (wide - wide.amax(-1, keepdim=True)).exp()
        return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)
