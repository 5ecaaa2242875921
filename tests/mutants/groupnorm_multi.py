"""GroupNorm as two Triton kernels behind a Python entry point: sums by atomic additions, then the normalisation."""

from tests.backends.contracts import contract, tensor
from tests.mutants.corpus import Mutant, Original

BATCH, CHANNELS, LENGTH, GROUPS = 2, 4, 50, 2
INPUTS = (tensor("x", BATCH, CHANNELS, LENGTH), tensor("weight", CHANNELS), tensor("bias", CHANNELS))

ORIGINAL = Original(
    kernel_type="multi_kernel",
    source="""
import torch
import triton
import triton.language as tl

@triton.jit
def sums(x_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + group * size + i, mask=i < size, other=0.0)
    tl.atomic_add(sums_ptr + 2 * group, tl.sum(x, 0))
    tl.atomic_add(sums_ptr + 2 * group + 1, tl.sum(x * x, 0))

@triton.jit
def normalise(x_ptr, sums_ptr, weight_ptr, bias_ptr, out_ptr, size, length, groups, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mean = tl.load(sums_ptr + 2 * group) / size
    variance = tl.load(sums_ptr + 2 * group + 1) / size - mean * mean
    channel = group % groups * (size // length) + i // length
    x = tl.load(x_ptr + group * size + i, mask=i < size)
    weight = tl.load(weight_ptr + channel, mask=i < size)
    bias = tl.load(bias_ptr + channel, mask=i < size)
    y = (x - mean) / tl.sqrt(variance + 1e-5) * weight + bias
    tl.store(out_ptr + group * size + i, y, mask=i < size)

def main(x, weight, bias):
    batch, channels, length = x.shape
    groups = 2
    size = channels // groups * length
    out = torch.empty_like(x)
    totals = torch.zeros(batch * groups, 2, device=x.device)
    grid = (batch * groups, triton.cdiv(size, 64))
    sums[grid](x, totals, size, BLOCK=64)
    normalise[grid](x, totals, weight, bias, out, size, length, groups, BLOCK=64)
    return out
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x, weight, bias):
        return torch.nn.functional.group_norm(x, {GROUPS}, weight, bias)
""",
    io=contract(*INPUTS),
    reference_io=contract(*INPUTS),
    metadata={"entry_point": "main"},
    mutants={
        "uninitialised": Mutant("the sums begin at whatever was there", "torch.zeros(batch * groups, 2,",
                                "torch.empty(batch * groups, 2,"),
        "stale": Mutant("the sums are kept from call to call", "torch.zeros(batch * groups, 2, device=x.device)",
                        "globals().setdefault('kept', torch.zeros(batch * groups, 2, device=x.device))"),
        "first-tile": Mutant("only the first tile is summed", "sums[grid](", "sums[(batch * groups, 1)]("),
        "last-group": Mutant("the last group is never written", "normalise[grid](",
                             "normalise[(grid[0] - 1, grid[1])]("),
        "weight": Mutant("the weight is taken by group", "weight_ptr + channel",
                         "weight_ptr + channel * 0 + group % groups"),
        "channel": Mutant("the channel forgets its group", "group % groups * (size // length) + i // length",
                          "i // length"),
        "length": Mutant("the mean is over one channel's length", "tl.load(sums_ptr + 2 * group) / size",
                         "tl.load(sums_ptr + 2 * group) / length"),
        "unbiased": Mutant("variance over n - 1", "variance + 1e-5", "variance * size / (size - 1) + 1e-5"),
    },
)  # fmt: skip
