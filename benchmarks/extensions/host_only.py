"""C++ alone, no CUDA source."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor run(torch::Tensor x) {
  auto y = torch::relu(x) + torch::sigmoid(x);
  return y.pow(2).sum(-1, true).sqrt();
}
"""

ext = load_inline(name="host_only", cpp_sources=CPP, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
