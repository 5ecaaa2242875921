"""Bias, residual and ReLU in one CUDA kernel, four elements to a thread, as a PyTorch extension."""

from tests.mutants.corpus import Mutant, Original

ORIGINAL = Original(
    kernel_type="torch_cuda",
    source="""
import torch
from torch.utils.cpp_extension import load_inline

cuda = r\"\"\"
__global__ void fused(const float* x, const float* bias, const float* residual, float* out, int n, int columns) {
    int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < first + 4 && i < n; ++i) {
        out[i] = fmaxf(x[i] + bias[i % columns], 0.0f) + residual[i];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor bias, torch::Tensor residual) {
    auto out = torch::empty_like(x);
    int n = x.numel(), columns = x.size(1);
    fused<<<(n + 1023) / 1024, 256>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), residual.data_ptr<float>(), out.data_ptr<float>(), n, columns);
    return out;
}
\"\"\"
module = load_inline(
    "fused_bias_residual",
    ["torch::Tensor run(torch::Tensor x, torch::Tensor bias, torch::Tensor residual);"],
    [cuda],
    functions=["run"],
)

class ModelNew(torch.nn.Module):
    def forward(self, x, bias, residual):
        return module.run(x, bias, residual)
""",
    reference="""
class Model(torch.nn.Module):
    def forward(self, x, bias, residual):
        return torch.relu(x + bias) + residual

def get_inputs():
    return [torch.randn(101, 203), torch.randn(203), torch.randn(101, 203)]
""",
    mutants={
        "tail": Mutant("the elements behind the last four are left out", "i < first + 4 && i < n",
                       "first + 4 <= n && i < first + 4"),
        "bias-row": Mutant("the bias is taken by row", "bias[i % columns]", "bias[i / columns]"),
        "grid": Mutant("one block too few", "(n + 1023) / 1024", "n / 1024"),
        "in-place": Mutant("written over the residual", "auto out = torch::empty_like(x);", "auto out = residual;"),
        "kept": Mutant("the first input's answer is kept", "return module.run(x, bias, residual)",
                       "if not hasattr(self, \"kept\"):\n            self.kept = module.run(x, bias, residual)\n"
                       "        return self.kept"),
    },
)  # fmt: skip
