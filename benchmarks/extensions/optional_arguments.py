"""std::optional tensors and a default of pybind11."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = ""
CUDA = """#include <torch/extension.h>
#include <optional>
__global__ void affine(const float* x, const float* b, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + (b ? b[i] : 0.0f);
}
torch::Tensor run(torch::Tensor x, std::optional<torch::Tensor> bias) {
  auto y = torch::empty_like(x);
  const float* b = bias.has_value() ? bias->data_ptr<float>() : nullptr;
  affine<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), b, y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, py::arg("x"), py::arg("bias") = py::none()); }
"""

ext = load_inline(name="optional_arguments", cpp_sources=CPP, cuda_sources=CUDA)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x, x) + ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
