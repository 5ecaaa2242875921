"""A stream of its own, which waits for the caller's and is waited for by it."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SUBMISSION = {"row": "H1", "type": "torch_cuda", "attacks": "affine", "expect": "H", "on": "gpu", "timeout": 180}

CUDA = """
#include <c10/cuda/CUDAStream.h>

__global__ void affine(const float* x, float* out, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i] + 1;
}

torch::Tensor run(torch::Tensor x) {
    static cudaStream_t own = nullptr;
    static cudaEvent_t before, after;
    if (!own) {
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&after, cudaEventDisableTiming);
    }
    auto out = torch::empty_like(x);
    auto current = c10::cuda::getCurrentCUDAStream();
    cudaEventRecord(before, current);
    cudaStreamWaitEvent(own, before);
    affine<<<(x.numel() + 255) / 256, 256, 0, own>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    cudaEventRecord(after, own);
    cudaStreamWaitEvent(current, after);
    return out;
}
"""

module = load_inline(
    "own_stream",
    ["torch::Tensor run(torch::Tensor x);"],
    [CUDA],
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
