"""Unbiased variance of each row in Triton, two passes over tiles, rows lying further apart than they are long."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS, STRIDE = 5, 300, 320
X = tensor("x", ROWS, COLUMNS)
X["tensor_spec"]["strides"] = [STRIDE, 1]

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def variance(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + row * stride + start + i, mask=start + i < n, other=0.0)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * stride + begin + i, mask=begin + i < n, other=0.0)
        squares += tl.where(begin + i < n, (x - mean) * (x - mean), 0.0)
    tl.store(out_ptr + row, tl.sum(squares, 0) / (n - 1))
""",
    # The mean is far from zero, as in data that somebody wants the variance of.
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.var(x, -1)

def get_inputs():
    return [(torch.randn({ROWS}, {STRIDE}) + 300)[:, :{COLUMNS}]]
""",
    io=contract(
        X, tensor("out", ROWS, role="output"),
        scalar("stride", STRIDE), scalar("n", COLUMNS), scalar("BLOCK", 128, meta=True), grid=ROWS,
    ),
    mutants={
        "biased": Mutant("divided by n: 3.3e-3 too little", "/ (n - 1)", "/ n"),
        "mask": Mutant("masked lanes count as zeros", "tl.where(begin + i < n, (x - mean) * (x - mean), 0.0)",
                       "(x - mean) * (x - mean)"),
        "stride": Mutant("rows taken as lying end to end", "row * stride + begin", "row * n + begin"),
        "first-tile": Mutant("the mean is the first tile's", "for start in range(0, n, BLOCK)",
                             "for start in range(0, BLOCK, BLOCK)"),
        "one-pass": Mutant("E[x²] - E[x]², which cancels", """tl.where(begin + i < n, (x - mean) * (x - mean), 0.0)
    tl.store(out_ptr + row, tl.sum(squares, 0) / (n - 1))""", """x * x
    tl.store(out_ptr + row, (tl.sum(squares, 0) - n * mean * mean) / (n - 1))"""),
        "tail": Mutant("the last column is left out of the mean", "mask=start + i < n,", "mask=start + i < n - 1,"),
        "half": Mutant("the mean is kept in half precision", "mean = tl.sum(total, 0) / n",
                       "mean = (tl.sum(total, 0) / n).to(tl.float16).to(tl.float32)"),
        "row": Mutant("the last row repeats the one before", "row = tl.program_id(0)",
                      "row = min(tl.program_id(0), 3)"),
    },
)  # fmt: skip
