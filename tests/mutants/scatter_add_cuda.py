"""Rows added to the places that an index gives, many to the same place, in CUDA; the base is changed where it lies."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original, drawn

PLACES, UPDATES, DEPTH = 20, 3001, 10
INDEX = drawn("index", UPDATES, dtype="int64", kind="randint", low=0, high=PLACES)

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
__global__ void scatter_add(float* base, const long long* index, const float* updates, int count, int depth) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * depth) return;
    int update = i / depth, d = i % depth;
    atomicAdd(&base[index[update] * depth + d], updates[i]);
}
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, base, index, updates):
        return base.index_add(0, index, updates)
""",
    io=contract(
        tensor("base", PLACES, DEPTH, role="inout"), INDEX, tensor("updates", UPDATES, DEPTH),
        scalar("count", UPDATES), scalar("depth", DEPTH), grid="cdiv(count * depth, 256)", block=256,
    ),
    reference_io=contract(tensor("base", PLACES, DEPTH), INDEX, tensor("updates", UPDATES, DEPTH)),
    atol=1e-3,  # 150 additions to a place, in any order.
    rtol=1e-3,
    mutants={
        "duplicates": Mutant("added without atomics: of equal places one is kept",
                             "atomicAdd(&base[index[update] * depth + d], updates[i])",
                             "base[index[update] * depth + d] += updates[i]"),
        "replaced": Mutant("replaced instead of added",
                           "atomicAdd(&base[index[update] * depth + d], updates[i])",
                           "base[index[update] * depth + d] = updates[i]"),
        "tail": Mutant("the last update's last element is left out", "i >= count * depth", "i >= count * depth - 1"),
        "division": Mutant("place and depth exchanged", "update = i / depth, d = i % depth",
                           "update = i % count, d = i / count"),
        "short-index": Mutant("the index is read as 32-bit", "index[update] * depth",
                              "((const int*)index)[update] * depth"),
        "last-place": Mutant("the last place is left out", "    atomicAdd(", "    if (index[update] < 19) atomicAdd("),
        "half": Mutant("updates are rounded to bfloat16", "updates[i])",
                       "__uint_as_float(__float_as_uint(updates[i]) & 0xffff0000u))"),
    },
)  # fmt: skip
