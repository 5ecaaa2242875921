"""Causal attention with an online softmax in Triton: fewer queries than keys, aligned at their ends."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

HEADS, QUERIES, KEYS, DEPTH = 2, 12, 28, 16

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, queries, keys, scale, DEPTH: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, DEPTH)
    q = tl.load(q_ptr + (head * queries + i[:, None]) * DEPTH + d[None, :], mask=i[:, None] < queries, other=0.0)
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    out = tl.zeros([BLOCK, DEPTH], tl.float32)
    for start in range(0, keys, BLOCK):
        j = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + (head * keys + j[None, :]) * DEPTH + d[:, None], mask=j[None, :] < keys, other=0.0)
        v = tl.load(v_ptr + (head * keys + j[:, None]) * DEPTH + d[None, :], mask=j[:, None] < keys, other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale
        s = tl.where(j[None, :] <= i[:, None] + keys - queries, s, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(s, 1))
        correction = tl.exp(largest - new_largest)
        p = tl.exp(s - new_largest[:, None])
        total = total * correction + tl.sum(p, 1)
        out = out * correction[:, None] + tl.dot(p, v, input_precision="ieee")
        largest = new_largest
    tl.store(out_ptr + (head * queries + i[:, None]) * DEPTH + d[None, :], out / total[:, None],
             mask=i[:, None] < queries)
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) / {DEPTH} ** 0.5
        hidden = torch.ones({QUERIES}, {KEYS}, dtype=torch.bool, device=q.device).triu({KEYS} - {QUERIES} + 1)
        return torch.softmax(s.masked_fill(hidden, float("-inf")), -1) @ v
""",
    io=contract(
        tensor("q", HEADS, QUERIES, DEPTH), tensor("k", HEADS, KEYS, DEPTH), tensor("v", HEADS, KEYS, DEPTH),
        tensor("out", HEADS, QUERIES, DEPTH, role="output"),
        scalar("queries", QUERIES), scalar("keys", KEYS), scalar("scale", DEPTH**-0.5),
        scalar("DEPTH", DEPTH, meta=True), scalar("BLOCK", 16, meta=True), grid=["cdiv(queries, BLOCK)", HEADS],
    ),
    reference_io=contract(
        tensor("q", HEADS, QUERIES, DEPTH), tensor("k", HEADS, KEYS, DEPTH), tensor("v", HEADS, KEYS, DEPTH)
    ),
    mutants={
        "diagonal": Mutant("a query does not see its own key", "j[None, :] <= i", "j[None, :] < i"),
        "alignment": Mutant("aligned at the first key", " + keys - queries, s", ", s"),
        "not-rescaled": Mutant("the output so far is not rescaled", "out = out * correction[:, None] +", "out = out +"),
        "sum-not-rescaled": Mutant("the sum so far is not rescaled", "total * correction +", "total +"),
        "correction": Mutant("rescaled to the tile's maximum, not to the running one",
                             "tl.exp(largest - new_largest)", "tl.exp(largest - tl.max(s, 1))"),
        "scale": Mutant("no scale", 'k, input_precision="ieee") * scale', 'k, input_precision="ieee")'),
        "first-tile": Mutant("only the first tile of keys", "range(0, keys, BLOCK)",
                             "range(0, BLOCK, BLOCK)"),
        "bfloat16": Mutant("probabilities rounded to bfloat16", "tl.dot(p, v,",
                       "tl.dot(p.to(tl.bfloat16).to(tl.float32), v,"),
        "head": Mutant("the values are those of the first head", "v_ptr + (head * keys + j", "v_ptr + (0 * keys + j"),
    },
)  # fmt: skip
