"""__constant__ memory, a static device counter, an anonymous namespace."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
__constant__ float weights[4];
static __device__ int calls;
namespace {
__global__ void weigh(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) atomicAdd(&calls, 1);
  if (i < n) y[i] = weights[i % 4] * x[i];
}
}
torch::Tensor run(torch::Tensor x) {
  const float host[4] = {1, 2, 3, 4};
  C10_CUDA_CHECK(cudaMemcpyToSymbol(weights, host, sizeof(host)));
  auto y = torch::empty_like(x);
  weigh<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""

ext = load_inline(name="constant_and_static", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
