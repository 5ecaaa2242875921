"""One cooperative launch: every row is summed by all blocks, which wait for each other."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SUBMISSION = {"row": "L46", "type": "torch_cuda", "attacks": "row_sum", "expect": "H", "on": "gpu", "timeout": 180}

CUDA = """
#include <cooperative_groups.h>

__global__ void rows(const float* x, float* parts, float* out, int count, int columns) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int row = warp; row < count; row += warps) {
        float sum = 0;
        for (int i = blockIdx.x * 32 + lane; i < columns; i += gridDim.x * 32) sum += x[row * (long)columns + i];
        for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
        if (lane == 0) parts[row * gridDim.x + blockIdx.x] = sum;
    }
    cooperative_groups::this_grid().sync();
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < count; row += gridDim.x * blockDim.x) {
        float sum = 0;
        for (int part = 0; part < gridDim.x; ++part) sum += parts[row * gridDim.x + part];
        out[row] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    int count = x.size(0), columns = x.size(1), blocks = 32;
    auto parts = torch::empty({count, blocks}, x.options());
    auto out = torch::empty({count}, x.options());
    auto given = x.data_ptr<float>(), between = parts.data_ptr<float>(), answer = out.data_ptr<float>();
    void* arguments[] = {&given, &between, &answer, &count, &columns};
    cudaLaunchCooperativeKernel((void*)rows, blocks, 1024, arguments, 0, 0);
    return out;
}
"""

module = load_inline(
    "cooperative",
    ["torch::Tensor run(torch::Tensor x);"],
    [CUDA],
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
