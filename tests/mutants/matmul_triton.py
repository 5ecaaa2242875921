"""Tiled matrix product in Triton: no dimension is a multiple of the tile, no two are equal."""

from tests.backends.contracts import scalar
from tests.mutants.corpus import Mutant, Original, matrix_product

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    accumulator = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, k, BLOCK):
        p = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i * k + p[None, :], mask=(i < m) & (p[None, :] < k), other=0.0)
        b = tl.load(b_ptr + p[:, None] * n + j, mask=(p[:, None] < k) & (j < n), other=0.0)
        accumulator += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + i * n + j, accumulator, mask=(i < m) & (j < n))
""",
    **matrix_product(20, 45, 55, scalar("BLOCK", 32, meta=True), grid=["cdiv(m, BLOCK)", "cdiv(n, BLOCK)"]),
    # Sums of 55 products in float32 differ by 1e-5; TF32 and half precision are 1e-2 away.
    atol=1e-3,
    rtol=1e-3,
    mutants={
        "k-tail": Mutant("no mask along k: the next row is multiplied with what lies behind b",
                         "mask=(i < m) & (p[None, :] < k), other", "mask=i < m, other"),
        "last-k-tile": Mutant("the k tile that is not full is left out", "range(0, k, BLOCK)",
                              "range(0, k - BLOCK, BLOCK)"),
        "not-added": Mutant("only the last k tile is kept", "accumulator +=", "accumulator ="),
        "square": Mutant("rows and columns exchanged in a guard", "accumulator, mask=(i < m) & (j < n)",
                         "accumulator, mask=(i < n) & (j < m)"),
        "stride": Mutant("b is read with the stride of a", "p[:, None] * n + j", "p[:, None] * k + j"),
        "half-accumulator": Mutant("accumulated in half precision", "accumulator += tl.dot",
                                   "accumulator = accumulator.to(tl.float16).to(tl.float32) + tl.dot"),
        "half-input": Mutant("multiplied in half precision", "tl.dot(a, b,",
                             "tl.dot(a.to(tl.float16), b.to(tl.float16),"),
        "tf32": Mutant("multiplied in TF32", '"ieee"', '"tf32"', gpu_only=True),
        "tile": Mutant("all column tiles compute the first one", "tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)"
                       "[None, :]", "tl.arange(0, BLOCK)[None, :]"),
    },
)  # fmt: skip
