"""Tiles multiplied in TF32, bias and GELU before they are written."""

import torch
import triton
import triton.language as tl


@triton.jit
def linear_gelu(x, weight, bias, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        left = tl.load(x + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            weight + column[None, :] * k + inner[:, None], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
        )
        total += tl.dot(left, right)
    total += tl.load(bias + column, mask=column < n, other=0.0)[None, :]
    total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    tl.store(out + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(inputs, outputs)

    def forward(self, x):
        (m, k), n = x.shape, self.linear.out_features
        out = torch.empty(m, n, device=x.device)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        linear_gelu[grid](x, self.linear.weight, self.linear.bias, out, m, n, k, M=64, N=64, K=32)
        return out
