"""Thrust on raw pointers."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <thrust/device_ptr.h>
#include <thrust/sort.h>
#include <thrust/execution_policy.h>
torch::Tensor run(torch::Tensor x) {
  auto y = x.clone();
  thrust::device_ptr<float> p(y.data_ptr<float>());
  thrust::sort(thrust::device, p, p + y.numel());
  return y;
}
"""

ext = load_inline(name="thrust_sort", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
