"""std::tuple of outputs; row maxima and where they are."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """std::tuple<torch::Tensor, torch::Tensor> run(torch::Tensor x);
"""
CUDA = """#include <torch/extension.h>
#include <tuple>
#include <cfloat>
__global__ void row_max(const float* x, float* value, int64_t* index, int columns) {
  float best = -FLT_MAX; int64_t where = 0;
  for (int c = 0; c < columns; ++c) {
    float v = x[blockIdx.x * columns + c];
    if (v > best) { best = v; where = c; }
  }
  value[blockIdx.x] = best; index[blockIdx.x] = where;
}
std::tuple<torch::Tensor, torch::Tensor> run(torch::Tensor x) {
  auto value = torch::empty({x.size(0)}, x.options());
  auto index = torch::empty({x.size(0)}, torch::TensorOptions().dtype(torch::kInt64).device(x.device()));
  row_max<<<x.size(0), 1>>>(x.data_ptr<float>(), value.data_ptr<float>(), index.data_ptr<int64_t>(), x.size(1));
  return std::make_tuple(value, index);
}
"""

ext = load_inline(name="several_outputs", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)[0]


def get_inputs():
    return [torch.sin(torch.arange(64 * 256, dtype=torch.float32)).reshape(64, 256)]
