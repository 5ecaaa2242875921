"""using namespace torch and unqualified names."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
using namespace torch;
__global__ void cube(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i] * x[i];
}
Tensor run(Tensor x) {
  Tensor y = torch::empty_like(x);
  cube<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return at::clamp(y, -10, 10);
}
"""

ext = load_inline(name="using_namespace", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
