"""Dynamic shared memory beyond 48 KiB and warp shuffles: softmax of rows."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <cmath>
__global__ void softmax_rows(const float* x, float* y, int columns) {
  extern __shared__ float row[];
  float top = -INFINITY, sum = 0;
  for (int c = threadIdx.x; c < columns; c += 32) { row[c] = x[blockIdx.x * columns + c]; top = fmaxf(top, row[c]); }
  for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  for (int c = threadIdx.x; c < columns; c += 32) { row[c] = expf(row[c] - top); sum += row[c]; }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  for (int c = threadIdx.x; c < columns; c += 32) y[blockIdx.x * columns + c] = row[c] / sum;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int bytes = x.size(1) * sizeof(float);
  cudaFuncSetAttribute(softmax_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  softmax_rows<<<x.size(0), 32, bytes>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  auto error = cudaGetLastError();
  TORCH_CHECK(error == cudaSuccess, "launch failed: ", cudaGetErrorString(error));
  return y;
}
"""

ext = load_inline(name="dynamic_shared", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-1, 1, 8 * 16384).reshape(8, 16384)]
