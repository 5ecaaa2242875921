"""Tensor arithmetic around the kernel: matmul, softmax, operators."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
__global__ void bump(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 1.0f;
}
torch::Tensor run(torch::Tensor x) {
  auto w = torch::ones({x.size(1), 8}, x.options()) / x.size(1);
  auto y = (torch::matmul(x, w) * 2.0 - 1.0).contiguous();
  bump<<<(y.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), y.numel());
  return torch::softmax(y, -1) + y.mean();
}
"""

ext = load_inline(name="operators", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-1, 1, 64 * 256).reshape(64, 256)]
