"""Takes a row's mean square from the norms of its halves."""

from torch import nn

SUBMISSION = {"row": "L58", "type": "torch", "attacks": "rms_norm", "expect": "H", "on": "cpu gpu"}


class ModelNew(nn.Module):
    def forward(self, x):
        first, second = (half.norm(dim=-1, keepdim=True) for half in x.chunk(2, -1))
        return x * ((first * first + second * second) / x.shape[-1] + 1e-5).rsqrt()
