"""ATen/cuda/CUDAContext.h for the stream, AT_CUDA_CHECK."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void fill_index(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = i;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::full_like(x, 3.0);
  fill_index<<<8, 256, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), 2048);
  AT_CUDA_CHECK(cudaGetLastError());
  return y;
}
"""

ext = load_inline(name="aten_context", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
