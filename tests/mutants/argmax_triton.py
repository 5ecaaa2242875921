"""Place of each row's first maximum in Triton, over several tiles; all values are negative and many are equal."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original, drawn

ROWS, COLUMNS = 10, 380

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def argmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = -float("inf")
    place = 0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf"))
        top = tl.max(x, 0)
        first = tl.min(tl.where(x == top, i, n), 0)
        place = tl.where(top > best, first, place)
        best = tl.maximum(top, best)
    tl.store(out_ptr + row, place)
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=-1, descending=True, stable=True).indices[:, 0]
""",
    io=contract(
        drawn("x", ROWS, COLUMNS, kind="randint", low=-200, high=-1),
        tensor("out", ROWS, dtype="int64", role="output"),
        scalar("n", COLUMNS), scalar("BLOCK", 128, meta=True), grid=ROWS,
    ),
    reference_io=contract(drawn("x", ROWS, COLUMNS, kind="randint", low=-200, high=-1)),
    mutants={
        "last-tile-wins": Mutant("a later tile wins a tie", "top > best", "top >= best"),
        "last-of-equals": Mutant("the last of equals within a tile", "tl.min(tl.where(x == top, i, n), 0)",
                                 "tl.max(tl.where(x == top, i, -1), 0)"),
        "mask-zero": Mutant("masked lanes are zeros, above every value", 'other=-float("inf")', "other=0.0"),
        "start-zero": Mutant("the best begins at zero", 'best = -float("inf")', "best = 0.0"),
        "no-offset": Mutant("the place is that within the tile", "place = tl.where(top > best, first,",
                            "place = tl.where(top > best, first - start,"),
        "last-tile": Mutant("the tile that is not full is left out", "range(0, n, BLOCK)",
                            "range(0, n - BLOCK, BLOCK)"),
        "short": Mutant("the place is kept in 8 bits", "out_ptr + row, place", "out_ptr + row, place.to(tl.int8)"),
    },
)  # fmt: skip
