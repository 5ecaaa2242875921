"""C++ of its own, compiled by the source."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SUBMISSION = {
    "row": "L35",
    "type": "torch_cuda",
    "attacks": "affine",
    "expect": "H",
    "on": "cpu gpu",
    "slow": True,
    "timeout": 180,
}

module = load_inline(
    "affine",
    ["torch::Tensor affine(torch::Tensor x) { return x * 2 + 1; }"],
    functions=["affine"],
    extra_cflags=["-O1"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.affine(x)
