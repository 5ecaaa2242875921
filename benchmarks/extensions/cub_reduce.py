"""cub::BlockReduce and cub::DeviceReduce with a workspace."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <cub/cub.cuh>
__global__ void block_sums(const float* x, float* y, int n) {
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ typename Reduce::TempStorage storage;
  int i = blockIdx.x * 256 + threadIdx.x;
  float sum = Reduce(storage).Sum(i < n ? x[i] : 0.0f);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
torch::Tensor run(torch::Tensor x) {
  int blocks = (x.numel() + 255) / 256;
  auto partial = torch::empty({blocks}, x.options()), total = torch::empty({1}, x.options());
  block_sums<<<blocks, 256>>>(x.data_ptr<float>(), partial.data_ptr<float>(), x.numel());
  size_t bytes = 0;
  cub::DeviceReduce::Sum(nullptr, bytes, partial.data_ptr<float>(), total.data_ptr<float>(), blocks);
  auto space = torch::empty({(int64_t)bytes}, x.options().dtype(torch::kUInt8));
  cub::DeviceReduce::Sum(space.data_ptr(), bytes, partial.data_ptr<float>(), total.data_ptr<float>(), blocks);
  return total;
}
"""

ext = load_inline(name="cub_reduce", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
