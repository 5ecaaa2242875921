"""Sum of each row in CUDA: a block to a row, shuffles within a warp, shared memory between warps."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS = 500, 1003

ORIGINAL = Original(
    kernel_type="cuda",
    source="""
#include <cuda_fp16.h>

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

__global__ void row_sum(const float* x, float* out, int n) {
    __shared__ float partial[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const float* row = x + (long long)blockIdx.x * n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i];
    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < warps ? partial[lane] : 0.0f;
        sum = warp_sum(sum);
        if (lane == 0) out[blockIdx.x] = sum;
    }
}
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)

def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS})]
""",
    io=contract(
        tensor("x", ROWS, COLUMNS), tensor("out", ROWS, role="output"), scalar("n", COLUMNS),
        grid=ROWS, block=256,
    ),
    atol=1e-3,
    rtol=1e-4,
    mutants={
        "barrier": Mutant("no barrier between the warps' sums and their sum", "    __syncthreads();\n", ""),
        "lanes": Mutant("every warp's sum is counted four times", "lane < warps ? partial[lane] : 0.0f",
                        "partial[lane % warps]"),
        "last-warp": Mutant("the last warp's sum is left out", "lane < warps", "lane < warps - 1"),
        "shuffle": Mutant("the shuffles begin at 8", "offset = 16", "offset = 8"),
        "tail": Mutant("the last column is left out", "i < n; i += blockDim.x", "i < n - 1; i += blockDim.x"),
        "first-tile": Mutant("only the first three tiles", "i < n; i += blockDim.x", "i < 768; i += blockDim.x"),
        "half": Mutant("accumulated in half precision", "sum += row[i];",
                       "sum = __half2float(__hadd(__float2half(sum), __float2half(row[i])));"),
        "alignment": Mutant("rows taken to be padded to four", "(long long)blockIdx.x * n",
                            "(long long)blockIdx.x * (n / 4 * 4)"),
    },
)  # fmt: skip
