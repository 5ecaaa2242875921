"""Elementwise out = scale * x + y in Triton, a tail that fills no block."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

N = 1000

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def axpy(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    i = start + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    y = tl.load(y_ptr + i, mask=mask)
    tl.store(out_ptr + i, scale * x + y, mask=mask)
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x, y):
        return 2.5 * x + y
""",
    io=contract(
        tensor("x", N), tensor("y", N), tensor("out", N, role="output"),
        scalar("n", N), scalar("scale", 2.5), scalar("BLOCK", 256, meta=True), grid="cdiv(n, BLOCK)",
    ),
    reference_io=contract(tensor("x", N), tensor("y", N)),
    mutants={
        "tail": Mutant("off by one: the last element is not written", "mask = i < n", "mask = i < n - 1"),
        "first-tile": Mutant("every program writes the first tile", "tl.program_id(0) * BLOCK", "0"),
        "full-tiles": Mutant("the tile that is not full is left out", "mask = i < n", "mask = start + BLOCK <= n"),
        "scale-both": Mutant("the scale is applied to the sum", "scale * x + y", "scale * (x + y)"),
        "scale-int": Mutant("the scale is truncated to a whole number", "scale * x", "tl.cast(scale, tl.int32) * x"),
        "half": Mutant(
            "computed in half precision", "scale * x + y", "(scale * x.to(tl.float16) + y.to(tl.float16))"
        ),
        "input-changed": Mutant(
            "the product is also left in x", "    tl.store(out_ptr", "    tl.store(x_ptr + i, scale * x, mask=mask)\n"
            "    tl.store(out_ptr",
        ),
        "store-past-end": Mutant(
            "the store has no mask and writes behind the output",
            "scale * x + y, mask=mask", "scale * x + y",
        ),
        "one-too-many": Mutant("one element too many is read and written", "mask = i < n", "mask = i < n + 1"),
        "no-mask": Mutant("nothing is masked: what is read past the inputs is written past the output",
                          "mask = i < n", "mask = i >= 0"),
    },
)  # fmt: skip
