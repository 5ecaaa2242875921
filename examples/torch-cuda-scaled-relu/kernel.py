import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# torch's headers compile slowly, so the kernel is in a source of its own that includes none.
CUDA = r"""
#include <cuda_runtime.h>

__global__ void scaled_relu_kernel(const float* x, float* y, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] * scale, 0.0f);
}

void launch_scaled_relu(const float* x, float* y, float scale, int n, cudaStream_t stream) {
    int threads = 256;
    scaled_relu_kernel<<<(n + threads - 1) / threads, threads, 0, stream>>>(x, y, scale, n);
}
"""

CPP = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

void launch_scaled_relu(const float* x, float* y, float scale, int n, cudaStream_t stream);

torch::Tensor scaled_relu(torch::Tensor x, double scale) {
    auto y = torch::empty_like(x);
    launch_scaled_relu(
        x.data_ptr<float>(), y.data_ptr<float>(), scale, x.numel(), c10::cuda::getCurrentCUDAStream());
    return y;
}
"""

extension = load_inline(
    name="scaled_relu",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["scaled_relu"],
    extra_cflags=["-O1"],
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.scaled_relu(x, 0.5)


def get_inputs():
    return [torch.randn(1024, 1024)]
