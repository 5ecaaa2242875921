"""float4 loads, __launch_bounds__, a macro for checks."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)
__global__ void __launch_bounds__(256) twice(const float4* x, float4* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 v = __ldg(x + i); v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2; y[i] = v; }
}
torch::Tensor run(torch::Tensor x) {
  CHECK_INPUT(x);
  auto y = torch::empty_like(x);
  int n = x.numel() / 4;
  twice<<<(n + 255) / 256, 256>>>((const float4*)x.data_ptr(), (float4*)y.data_ptr(), n);
  return y;
}
"""

ext = load_inline(name="vectorised", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
