"""Histogram in CUDA: atomic additions to shared bins, then to the output, which begins at zero."""

from tests.backends.contracts import contract, scalar
from tests.mutants.corpus import Mutant, Original, drawn

N, BINS = 500_003, 64
VALUES = drawn("x", N, dtype="int32", kind="randint", low=0, high=BINS)

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
__global__ void histogram(const int* x, int* counts, int n) {
    __shared__ int bins[64];
    if (threadIdx.x < 64) bins[threadIdx.x] = 0;
    __syncthreads();  // cleared
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[x[i]], 1);
    }
    __syncthreads();  // counted
    if (threadIdx.x < 64) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength={BINS}).int()
""",
    io=contract(
        VALUES, drawn("counts", BINS, dtype="int32", role="inout", kind="zeros"), scalar("n", N),
        grid=1500, block=256,
    ),
    reference_io=contract(VALUES),
    mutants={
        "not-atomic": Mutant("shared bins are added to without atomics", "atomicAdd(&bins[x[i]], 1);",
                             "bins[x[i]] += 1;"),
        "blocks-not-atomic": Mutant("blocks add to the output without atomics",
                                    "atomicAdd(&counts[threadIdx.x], bins[threadIdx.x])",
                                    "counts[threadIdx.x] += bins[threadIdx.x]"),
        "barrier-counted": Mutant("no barrier between counting and adding up", "__syncthreads();  // counted", ""),
        "uninitialised": Mutant("bins are not cleared", "bins[threadIdx.x] = 0", "bins[threadIdx.x] += 0"),
        "last-bin": Mutant("the last bin is not added up", "if (threadIdx.x < 64) atomicAdd",
                           "if (threadIdx.x < 63) atomicAdd"),
        "tail": Mutant("the last value is not counted", "i < n; i +=", "i < n - 1; i +="),
        "first-tile": Mutant("every thread counts one value only", "i += gridDim.x * blockDim.x", "i += n"),
        "twice": Mutant("the stride is one short, so that some are counted twice", "i += gridDim.x * blockDim.x",
                        "i += gridDim.x * blockDim.x - 1"),
    },
)  # fmt: skip
