"""All steps in one pass, called from PyTorch."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void bias_gelu(const float* x, const float* bias, float* out, long n, int width) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float y = x[i] + bias[i % width];
    out[i] = 0.5f * y * (1.0f + tanhf(0.79788456f * (y + 0.044715f * y * y * y)));
}

torch::Tensor run(torch::Tensor x, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    long n = x.numel();
    bias_gelu<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), n, x.size(1));
    return out;
}
"""
extension = load_inline(
    "starter_bias_gelu",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=SOURCE,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias):
        return extension.run(x, bias)
