"""A submission with an extension in C++ that needs none of torch's headers: it is compiled in a few seconds."""

import torch
from torch.utils.cpp_extension import load_inline

CPP = """#include <pybind11/pybind11.h>

void relu(long long from, long long to, long long count) {
  auto x = reinterpret_cast<const float*>(from);
  auto y = reinterpret_cast<float*>(to);
  for (long long i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("relu", relu); }
"""

extension = load_inline(name="host_relu", cpp_sources=CPP, no_implicit_headers=True, extra_cflags=["-O0"])


def kernel_fn(x):
    given = x.cpu()  # The extension's loop runs on the host, also where the tensors are on a card.
    y = torch.empty_like(given)
    extension.relu(given.data_ptr(), y.data_ptr(), given.numel())
    return y.to(x.device)


def get_inputs():
    return [torch.randn(4096)]
