"""Cross entropy of each row with an ignored label in Triton; logits are large and negative, tiles are summed online."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, CLASSES = 16, 100

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def cross_entropy(x_ptr, labels_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels_ptr + row)
    largest = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf"))
        new_largest = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest), 0)
        largest = new_largest
    chosen = tl.load(x_ptr + row * n + label, mask=label >= 0, other=0.0)
    loss = largest + tl.log(total) - chosen
    tl.store(out_ptr + row, tl.where(label >= 0, loss, 0.0))
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x, labels):
        return torch.nn.functional.cross_entropy(x, labels, ignore_index=-100, reduction="none")

def get_inputs():
    labels = torch.randint(0, {CLASSES}, ({ROWS},))
    labels[torch.randperm({ROWS})[:3]] = -100
    return [torch.randn({ROWS}, {CLASSES}) * 40 - 200, labels]
""",
    io=contract(
        tensor("x", ROWS, CLASSES), tensor("labels", ROWS, dtype="int64"), tensor("out", ROWS, role="output"),
        scalar("n", CLASSES), scalar("BLOCK", 64, meta=True), grid=ROWS,
    ),
    mutants={
        "no-max": Mutant("no maximum is subtracted: exp(-200) is zero", "tl.maximum(largest, tl.max(x, 0))",
                         "tl.max(x, 0) * 0.0"),
        "not-rescaled": Mutant("the sum so far is not rescaled", "total * tl.exp(largest - new_largest)", "total"),
        "ignored": Mutant("an ignored row has a loss", "tl.where(label >= 0, loss, 0.0)", "loss"),
        "ignored-nan": Mutant("an ignored row is NaN", "tl.where(label >= 0, loss, 0.0)",
                              'tl.where(label >= 0, loss, float("nan"))'),
        "label": Mutant("the label before is chosen", "row * n + label,", "row * n + label - 1,"),
        "mask": Mutant("masked lanes are zeros", 'other=-float("inf")', "other=0.0"),
        "last-tile": Mutant("the tile that is not full is left out", "range(0, n, BLOCK)",
                            "range(0, n - BLOCK + 1, BLOCK)"),
        "log2": Mutant("a logarithm of base two", "tl.log(total)", "tl.log2(total)"),
        "capped": Mutant("the loss is capped, as log(p + 1e-8) does", "largest + tl.log(total) - chosen",
                         "tl.minimum(largest + tl.log(total) - chosen, 18.4)"),
    },
)  # fmt: skip
