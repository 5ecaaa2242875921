"""Launches on the default stream, as most inline CUDA does."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SUBMISSION = {"row": "L45", "type": "torch_cuda", "attacks": "affine", "expect": "H", "on": "gpu", "timeout": 180}

CUDA = """
__global__ void affine(const float* x, float* out, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i] + 1;
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    affine<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""

module = load_inline(
    "default_stream",
    ["torch::Tensor run(torch::Tensor x);"],
    [CUDA],
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
