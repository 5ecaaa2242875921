"""Everything through at:: and the ATen header."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """at::Tensor run(const at::Tensor& x);
"""
CUDA = """#include <ATen/ATen.h>
__global__ void negate(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = -x[i];
}
at::Tensor run(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
  negate<<<(x.numel() + 255) / 256, 256>>>(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  return at::abs(y).add_(1);
}
"""

ext = load_inline(name="aten_names", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
