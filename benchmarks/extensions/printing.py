"""std::cout, a stream of strings, sizes in a message."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <iostream>
#include <sstream>
__global__ void one(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 1; }
torch::Tensor run(torch::Tensor x) {
  std::ostringstream said;
  said << "x has " << x.sizes() << " of " << x.scalar_type();
  if (x.numel() == 0) std::cout << said.str() << x << std::endl;
  auto y = torch::zeros({32}, torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA));
  one<<<1, 32>>>(y.data_ptr<float>(), 32);
  return y;
}
"""

ext = load_inline(name="printing", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
