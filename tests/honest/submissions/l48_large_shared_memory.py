"""Asks for more shared memory than a kernel has by default, at its first call."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SUBMISSION = {"row": "H29", "type": "torch_cuda", "attacks": "row_sum", "expect": "H", "on": "gpu", "timeout": 180}

CUDA = """
extern __shared__ float row[];

__global__ void total(const float* x, float* out, int columns) {
    for (int i = threadIdx.x; i < columns; i += blockDim.x) row[i] = x[blockIdx.x * (long)columns + i];
    __syncthreads();
    for (int half = columns / 2; half; half /= 2) {
        for (int i = threadIdx.x; i < half; i += blockDim.x) row[i] += row[i + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = row[0];
}

torch::Tensor run(torch::Tensor x) {
    static bool ready = false;
    int bytes = 96 * 1024;
    if (!ready) {
        cudaFuncSetAttribute(total, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        ready = true;
    }
    auto out = torch::empty({x.size(0)}, x.options());
    total<<<x.size(0), 256, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""

module = load_inline(
    "large_shared",
    ["torch::Tensor run(torch::Tensor x);"],
    [CUDA],
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
