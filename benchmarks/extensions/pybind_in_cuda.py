"""PYBIND11_MODULE in the CUDA source, cpp_sources empty."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = ""
CUDA = """#include <torch/extension.h>
__global__ void scale(const float* x, float* y, float f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f * x[i];
}
torch::Tensor run(torch::Tensor x, double factor) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::zeros_like(x);
  scale<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), factor, x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "scaled", py::arg("x"), py::arg("factor") = 2.0); }
"""

ext = load_inline(name="pybind_in_cuda", cpp_sources=CPP, cuda_sources=CUDA)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
