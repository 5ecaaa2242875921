"""Batch normalisation at inference as one multiplication and addition; its statistics are not those of a new layer."""

from tests.mutants.corpus import Mutant, Original

LAYER = """
        self.norm = torch.nn.BatchNorm2d(12, eps=1e-3)
        for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var):
            torch.nn.init.uniform_(tensor, 0.05, 1.5)
        self.eval()
"""

ORIGINAL = Original(
    kernel_type="torch",
    source=f"""
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {LAYER}
    def forward(self, x):
        norm = self.norm
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
""",
    reference=f"""
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {LAYER}
    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(3, 12, 7, 12)]
""",
    mutants={
        "epsilon": Mutant("torch's usual epsilon in place of the layer's", "norm.running_var + norm.eps",
                          "norm.running_var + 1e-5"),
        "no-root": Mutant("divided by the variance", "torch.sqrt(norm.running_var + norm.eps)",
                          "(norm.running_var + norm.eps)"),
        "mean-unscaled": Mutant("the mean is not scaled", "norm.running_mean * scale", "norm.running_mean"),
        "axis": Mutant("scaled along the width, which is as long", "scale.view(1, -1, 1, 1) + shift",
                       "scale.view(1, 1, 1, -1) + shift"),
        "batch-statistics": Mutant("the batch's own mean", "norm.running_mean * scale", "x.mean((0, 2, 3)) * scale"),
        "weight": Mutant("the weight is left out of the shift", "norm.running_mean * scale",
                         "norm.running_mean / torch.sqrt(norm.running_var + norm.eps)"),
        "stale": Mutant("the first input's answer is kept", "return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, "
                        "1, 1)", "self.kept = getattr(self, \"kept\", x * scale.view(1, -1, 1, 1) + shift.view(1, -1, "
                        "1, 1))\n        return self.kept"),
    },
)  # fmt: skip
