"""Each half written to its place, without turned copies."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, cosine, sine):
        first, second = x.chunk(2, dim=-1)
        out = torch.empty_like(x)
        left, right = out.chunk(2, dim=-1)
        torch.mul(first, cosine, out=left).addcmul_(second, sine, value=-1)
        torch.mul(second, cosine, out=right).addcmul_(first, sine)
        return out
