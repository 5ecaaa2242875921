"""C++ alone with -O3 and its own PYBIND11_MODULE."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """#include <torch/extension.h>
#include <cmath>
torch::Tensor run(torch::Tensor x) {
  auto given = x.cpu().contiguous();
  auto y = torch::empty_like(given);
  const float* source = given.data_ptr<float>();
  float* target = y.data_ptr<float>();
  at::parallel_for(0, given.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) target[i] = std::tanh(source[i]);
  });
  return y.to(x.device());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""

ext = load_inline(name="host_only_optimised", cpp_sources=CPP, extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
