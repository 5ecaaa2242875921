"""A row for each program, of which only the part before its own place is read."""

import torch
import triton
import triton.language as tl


@triton.jit
def causal_softmax(scores, out, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    value = tl.load(scores + row * length + column, mask=column <= row % length, other=-float("inf")) * 0.125
    raised = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * length + column, raised / tl.sum(raised, axis=0), mask=column < length)


class ModelNew(torch.nn.Module):
    def forward(self, scores):
        out, length = torch.empty_like(scores), scores.shape[-1]
        causal_softmax[(scores.numel() // length,)](scores, out, length, BLOCK=triton.next_power_of_2(length))
        return out
