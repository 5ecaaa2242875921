"""torch::tensor, arange and from_blob on the host, copied to the device."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <vector>
__global__ void gather(const float* x, const int64_t* index, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[index[i]];
}
torch::Tensor run(torch::Tensor x) {
  std::vector<int64_t> held = {5, 3, 1};
  auto few = torch::from_blob(held.data(), {3}, torch::kInt64).clone();
  auto made = torch::cat({torch::tensor({2, 4, 6}, torch::kInt64), torch::arange(0, 10, torch::kInt64), few});
  auto index = made.to(x.device());
  auto y = torch::empty({index.numel()}, x.options());
  gather<<<1, 64>>>(x.data_ptr<float>(), index.data_ptr<int64_t>(), y.data_ptr<float>(), index.numel());
  return y;
}
"""

ext = load_inline(name="host_tensors", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
