"""The gate in one pass between torch's products."""

import torch
import triton
import triton.language as tl


@triton.jit
def gated(gate, up, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(gate + at, mask=at < n)
    tl.store(gate + at, value * tl.sigmoid(value) * tl.load(up + at, mask=at < n), mask=at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.gate(x), self.up(x)
        gated[(triton.cdiv(gate.numel(), 1024),)](gate, up, gate.numel(), BLOCK=1024)
        return self.down(gate)
