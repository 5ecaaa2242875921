"""Two functions, one with a list of tensors and scalars."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """#include <vector>
torch::Tensor combine(std::vector<torch::Tensor> parts, double a);
int64_t elements(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
__global__ void axpy(const float* x, const float* y, float* z, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}
torch::Tensor combine(std::vector<torch::Tensor> parts, double a) {
  TORCH_CHECK(parts.size() == 2, "two tensors, not ", parts.size());
  auto z = torch::empty_like(parts[0]);
  axpy<<<(z.numel() + 255) / 256, 256>>>(parts[0].data_ptr<float>(), parts[1].data_ptr<float>(), z.data_ptr<float>(),
                                         a, z.numel());
  return z;
}
int64_t elements(torch::Tensor x) { return x.numel(); }
"""

ext = load_inline(name="two_functions", cpp_sources=CPP, cuda_sources=CUDA, functions=["combine", "elements"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.combine([x, x], 0.5) + ext.elements(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
