"""Rotary position embedding, halves rotated against each other, positions given."""

from tests.mutants.corpus import Mutant, Original

ORIGINAL = Original(
    kernel_type="torch",
    source="""
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x, positions):
        depth = x.shape[-1]
        exponent = torch.arange(0, depth, 2, device=x.device).float() / depth
        angle = positions.float().unsqueeze(-1) * 10000.0 ** -exponent
        sine, cosine = angle.sin(), angle.cos()
        one, two = x[..., : depth // 2], x[..., depth // 2 :]
        return torch.cat((one * cosine - two * sine, two * cosine + one * sine), -1)
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x, positions):
        half = x.shape[-1] // 2
        frequency = 1.0 / 10000.0 ** (torch.arange(half, device=x.device).float() / half)
        angle = torch.outer(positions.float(), frequency)
        angle = torch.cat((angle, angle), -1)
        rotated = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * angle.cos() + rotated * angle.sin()

def get_inputs():
    return [torch.randn(2, 3, 40, 32), torch.randint(0, 300, (40,)).sort().values]
""",
    atol=1e-3,  # Angles of up to 300 are rounded to 1.5e-5.
    rtol=1e-3,
    mutants={
        "interleaved": Mutant("neighbours are rotated against each other",
                              "x[..., : depth // 2], x[..., depth // 2 :]", "x[..., ::2], x[..., 1::2]"),
        "sign": Mutant("rotated the other way round", "one * cosine - two * sine, two * cosine + one * sine",
                       "one * cosine + two * sine, two * cosine - one * sine"),
        "position": Mutant("positions counted from one", "positions.float()", "(positions + 1).float()"),
        "positions-ignored": Mutant("positions taken to be 0, 1, 2, ...", "positions.float()",
                                    "torch.arange(len(positions), device=x.device).float()"),
        "exponent": Mutant("frequencies fall half as fast", "device=x.device).float() / depth",
                           "device=x.device).float() / (2 * depth)"),
        "base": Mutant("a base of 10001", "10000.0", "10001.0"),
        "bfloat16": Mutant("sine and cosine in bfloat16", "angle.sin(), angle.cos()",
                           "angle.sin().bfloat16().float(), angle.cos().bfloat16().float()"),
        "half-angle": Mutant("the angle in half precision", "sine, cosine = angle", "angle = angle.half().float()\n"
                             "        sine, cosine = angle"),
    },
)  # fmt: skip
