"""A row for each program, the mean by torch."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_loss(logits, target, out, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    value = tl.load(logits + row * classes + column, mask=column < classes, other=-float("inf"))
    top = tl.max(value, axis=0)
    own = tl.load(logits + row * classes + tl.load(target + row))
    tl.store(out + row, top + tl.log(tl.sum(tl.exp(value - top), axis=0)) - own)


class ModelNew(torch.nn.Module):
    def forward(self, logits, target):
        rows, classes = logits.shape
        out = torch.empty(rows, device=logits.device)
        row_loss[(rows,)](logits, target, out, classes, BLOCK=triton.next_power_of_2(classes))
        return out.mean()
