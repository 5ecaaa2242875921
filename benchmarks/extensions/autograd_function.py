"""An autograd::Function in C++ around a kernel."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """torch::Tensor times_three_cuda(torch::Tensor x);
struct TimesThree : public torch::autograd::Function<TimesThree> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
    context->save_for_backward({x});
    return times_three_cuda(x.contiguous());
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list grads) {
    return {times_three_cuda(grads[0].contiguous())};
  }
};
torch::Tensor run(torch::Tensor x) { return TimesThree::apply(x); }
"""
CUDA = """#include <torch/extension.h>
__global__ void times_three(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 3 * x[i];
}
torch::Tensor times_three_cuda(torch::Tensor x) {
  auto y = torch::empty_like(x);
  times_three<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""

ext = load_inline(name="autograd_function", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.linspace(-3, 3, 4096)]
