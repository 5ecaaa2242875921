"""torch::nn::functional in the host source: needs the whole umbrella."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor shifted(torch::Tensor x);
torch::Tensor run(torch::Tensor x) { return torch::nn::functional::relu(shifted(x)); }
"""
CUDA = """__global__ void shift(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 0.5f;
}
torch::Tensor shifted(torch::Tensor x) {
  auto y = torch::empty_like(x);
  shift<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""

ext = load_inline(name="functional_in_host", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
