"""cuBLAS through ATen's handle."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor a);
"""
CUDA = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
torch::Tensor run(torch::Tensor a) {
  auto c = torch::zeros({a.size(1), a.size(1)}, a.options());
  const float one = 1.0f, zero = 0.0f;
  int n = a.size(1), k = a.size(0);
  cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, k, &one, a.data_ptr<float>(), n, a.data_ptr<float>(), n, &zero,
              c.data_ptr<float>(), n);
  return c;
}
"""

ext = load_inline(
    name="cublas_handle", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"], extra_ldflags=["-lcublas"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-1, 1, 64 * 96).reshape(64, 96)]
