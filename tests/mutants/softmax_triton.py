"""Softmax of each row in Triton, a row to a program, inputs drawn by the contract."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS = 8, 100

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    y = e / tl.sum(e, 0)
    tl.store(out_ptr + row * n + i, y, mask=i < n)
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
""",
    io=contract(
        tensor("x", ROWS, COLUMNS), tensor("out", ROWS, COLUMNS, role="output"),
        scalar("n", COLUMNS), scalar("BLOCK", 128, meta=True), grid=ROWS,
    ),
    reference_io=contract(tensor("x", ROWS, COLUMNS)),
    atol=1e-5,  # The answers are about 1/100 each.
    mutants={
        "mask-zero": Mutant("masked lanes count as zeros in the sum", 'other=-float("inf")', "other=0.0"),
        "no-mask": Mutant("the next row's head is counted too", 'x_ptr + row * n + i, mask=i < n, other=-float("inf")',
                          "x_ptr + row * n + i"),
        "base": Mutant("powers of two instead of e", "tl.exp(", "tl.exp2("),
        "half": Mutant("the exponent is rounded to half precision", "x - tl.max(x, 0))",
                       "(x - tl.max(x, 0)).to(tl.float16).to(tl.float32))"),
        "last-row": Mutant("the last row is never written", "tl.program_id(0)", "min(tl.program_id(0), 6)"),
        "tail": Mutant("the last column is left out", 'mask=i < n, other', 'mask=i < n - 1, other'),
        "sum-short": Mutant("the sum leaves the first lane out", "tl.sum(e, 0)", "tl.sum(tl.where(i > 0, e, 0.0), 0)"),
        "no-max": Mutant("no maximum is subtracted: overflows from 89", "x - tl.max(x, 0)", "x",
                         beyond="far below"),
    },
)  # fmt: skip
