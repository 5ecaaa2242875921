"""Inclusive prefix sums of each row in CUDA: a scan of each tile in shared memory, a carry between tiles."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS = 400, 2500

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
__global__ void cumsum(const float* x, float* out, int n) {
    __shared__ float sums[1024];
    __shared__ float carry;
    int t = threadIdx.x;
    long long row = (long long)blockIdx.x * n;
    if (t == 0) carry = 0.0f;
    for (int start = 0; start < n; start += 1024) {
        int i = start + t;
        sums[t] = i < n ? x[row + i] : 0.0f;
        __syncthreads();  // loaded
        for (int step = 1; step < 1024; step *= 2) {
            float before = t >= step ? sums[t - step] : 0.0f;
            __syncthreads();  // read
            sums[t] += before;
            __syncthreads();  // written
        }
        if (i < n) out[row + i] = carry + sums[t];
        __syncthreads();  // carry read
        if (t == 1023) carry += sums[t];
    }
}
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, -1)

def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS})]
""",
    io=contract(
        tensor("x", ROWS, COLUMNS), tensor("out", ROWS, COLUMNS, role="output"), scalar("n", COLUMNS),
        grid=ROWS, block=1024,
    ),
    atol=1e-3,
    rtol=1e-3,
    mutants={
        "barrier-read": Mutant("no barrier between reading and writing", "__syncthreads();  // read", ""),
        "barrier-written": Mutant("no barrier between writing and the next step", "__syncthreads();  // written", ""),
        "carry": Mutant("tiles are not joined", "carry + sums[t]", "sums[t]"),
        "carry-replaced": Mutant("the carry is the last tile's sum only", "carry += sums[t]", "carry = sums[t]"),
        "carry-short": Mutant("the carry leaves the tile's last element out", "carry += sums[t]",
                              "carry += sums[t - 1]"),
        "exclusive": Mutant("the element itself is not in its sum", "carry + sums[t]",
                            "carry + sums[t] - x[row + i]"),
        "steps": Mutant("the scan stops one step early", "step < 1024", "step < 512"),
        "first-tile": Mutant("only full tiles", "start < n; start += 1024", "start + 1024 <= n; start += 1024"),
        "zero-carry": Mutant("the carry's start is left to chance", "if (t == 0) carry = 0.0f;",
                             "if (t == 0 && n < 0) carry = 0.0f;"),
    },
)  # fmt: skip
