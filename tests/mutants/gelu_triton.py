"""Exact GELU (by erf) in Triton."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS = 37, 129
N = ROWS * COLUMNS
PHI = "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def gelu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + i, y, mask=i < n)
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)
""",
    io=contract(
        tensor("x", ROWS, COLUMNS), tensor("out", ROWS, COLUMNS, role="output"),
        scalar("n", N), scalar("BLOCK", 1024, meta=True), grid="cdiv(n, BLOCK)",
    ),
    reference_io=contract(tensor("x", ROWS, COLUMNS)),
    mutants={
        "tanh": Mutant(
            "the tanh approximation, 5e-4 away", PHI,
            "x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
        ),
        "quick": Mutant("the sigmoid approximation, 2e-2 away", PHI, "x * tl.sigmoid(1.702 * x)"),
        "constant": Mutant("1/sqrt(2) rounded to two digits", "0.7071067811865476", "0.71"),
        "tail": Mutant("the last element is not written", "y, mask=i < n", "y, mask=i < n - 1"),
        "cut-below": Mutant("zero below -2.5, where it is -0.016", "y, mask", "tl.where(x > -2.5, y, 0.0), mask"),
        "bfloat16": Mutant("rounded to bfloat16 on the way", "y, mask", "y.to(tl.bfloat16).to(tl.float32), mask"),
        "last-block": Mutant(
            "one block too few: the index is clamped", "tl.program_id(0) * BLOCK", "min(tl.program_id(0), 3) * BLOCK"
        ),
        "cut-above": Mutant(
            "saturates at 6, which a normal distribution does not reach", "y, mask", "tl.minimum(y, 6.0), mask",
            beyond="outliers",
        ),
    },
)  # fmt: skip
