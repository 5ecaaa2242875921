"""Mean of the embeddings of a bag's first `length` tokens in Triton; an empty bag is all zeros."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original, drawn

BAGS, LONGEST, WORDS, DEPTH = 10, 4, 8, 12
INPUTS = (
    drawn("tokens", BAGS, LONGEST, dtype="int64", kind="randint", low=0, high=WORDS),
    drawn("lengths", BAGS, dtype="int64", kind="randint", low=0, high=LONGEST + 1),
    tensor("table", WORDS, DEPTH),
)

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def bag(tokens_ptr, lengths_ptr, table_ptr, out_ptr, longest, depth, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    length = tl.load(lengths_ptr + row)
    total = tl.zeros([BLOCK], tl.float32)
    for t in range(0, longest):
        token = tl.load(tokens_ptr + row * longest + t)
        vector = tl.load(table_ptr + token * depth + d, mask=d < depth, other=0.0)
        total += tl.where(t < length, vector, 0.0)
    tl.store(out_ptr + row * depth + d, total / tl.maximum(length, 1), mask=d < depth)
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, tokens, lengths, table):
        kept = (torch.arange({LONGEST}, device=tokens.device) < lengths[:, None]).unsqueeze(-1)
        return (table[tokens] * kept).sum(1) / lengths.clamp(min=1)[:, None]
""",
    io=contract(
        *INPUTS, tensor("out", BAGS, DEPTH, role="output"),
        scalar("longest", LONGEST), scalar("depth", DEPTH), scalar("BLOCK", 16, meta=True), grid=BAGS,
    ),
    reference_io=contract(*INPUTS),
    mutants={
        "empty": Mutant("an empty bag divides by zero", "tl.maximum(length, 1)", "length"),
        "length": Mutant("one token too many", "t < length", "t <= length"),
        "padding": Mutant("the tokens behind the length count too", "tl.where(t < length, vector, 0.0)", "vector"),
        "divisor": Mutant("divided by the longest length", "tl.maximum(length, 1)", "longest"),
        "last-word": Mutant("the vocabulary's last word is taken for the one before", "table_ptr + token * depth",
                            "table_ptr + tl.minimum(token, 6) * depth"),
        "stride": Mutant("the table is read with the block's stride", "token * depth + d", "token * BLOCK + d"),
        "last-token": Mutant("the last place of a bag is never read", "range(0, longest)", "range(0, longest - 1)"),
    },
)  # fmt: skip
