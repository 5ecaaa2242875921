"""A tiled matrix product with templates and shared memory."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor a);
"""
CUDA = """#include <torch/extension.h>
template <int T>
__global__ void matmul_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[T][T], bs[T][T];
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < (k + T - 1) / T; ++t) {
    as[threadIdx.y][threadIdx.x] = row < m && t * T + threadIdx.x < k ? a[row * k + t * T + threadIdx.x] : 0;
    bs[threadIdx.y][threadIdx.x] = col < n && t * T + threadIdx.y < k ? b[(t * T + threadIdx.y) * n + col] : 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
torch::Tensor run(torch::Tensor a) {
  auto b = a.t().contiguous();
  int m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::zeros({m, n}, torch::dtype(a.dtype()).device(a.device()));
  dim3 block(16, 16), grid((n + 15) / 16, (m + 15) / 16);
  matmul_kernel<16><<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
  return c;
}
"""

ext = load_inline(name="tiled_matmul", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-1, 1, 64 * 96).reshape(64, 96)]
