"""The gate in one pass between torch's products, called from PyTorch."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void gated(float* gate, const float* up, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void run(torch::Tensor gate, torch::Tensor up) {
    long n = gate.numel();
    gated<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        gate.data_ptr<float>(), up.data_ptr<float>(), n);
}
"""
extension = load_inline(
    "starter_gated",
    cpp_sources="void run(torch::Tensor gate, torch::Tensor up);",
    cuda_sources=SOURCE,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate = self.gate(x)
        extension.run(gate, self.up(x))
        return self.down(gate)
