"""A block for each row, the row in registers, sums by warps."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ float total(float value, float* warps) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.0f;
    for (int i = 0; i < blockDim.x / 32; ++i) value += warps[i];
    __syncthreads();
    return value;
}

__global__ void layer_norm(const float* x, const float* weight, const float* bias, float* out, int width) {
    __shared__ float warps[8];
    x += (size_t)blockIdx.x * width;
    out += (size_t)blockIdx.x * width;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += x[i];
    float mean = total(sum, warps) / width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) squares += (x[i] - mean) * (x[i] - mean);
    float scale = rsqrtf(total(squares, warps) / width + 1e-5f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    layer_norm<<<x.size(0), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""
DECLARED = "torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);"
extension = load_inline("starter_layer_norm", cpp_sources=DECLARED, cuda_sources=SOURCE, functions=["run"])


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width))
        self.bias = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        return extension.run(x, self.weight, self.bias)
