"""RMSNorm of half-precision activations in torch ops, its weight as a new module has it: all ones."""

from tests.mutants.corpus import Mutant, Original

MODEL = """
import torch

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(96))

    def forward(self, x):
        {forward}
"""

ORIGINAL = Original(
    kernel_type="torch",
    source=MODEL.format(
        name="ModelNew",
        forward="""wide = x.float()
        scale = torch.rsqrt((wide * wide).sum(-1, keepdim=True) / x.shape[-1] + 1e-5)
        return (wide * scale * self.weight).half()""",
    ),
    reference=MODEL.format(
        name="Model", forward="return torch.nn.functional.rms_norm(x.float(), (96,), self.weight, 1e-5).half()"
    )
    + """
def get_inputs():
    return [(torch.randn(4, 10, 96) * 30).half()]
""",
    atol=1e-4,
    rtol=2e-3,  # Two units in the last place of float16.
    mutants={
        "half-sum": Mutant("squares summed in half precision, which overflows at 65504", "wide * wide).sum",
                           "x * x).sum"),
        "axis": Mutant("normalised over the sequence", "sum(-1, keepdim=True)", "sum(1, keepdim=True)"),
        "count": Mutant("divided by the sequence's length", "/ x.shape[-1]", "/ x.shape[-2]"),
        "mean-removed": Mutant("the mean is subtracted, as LayerNorm does", "wide = x.float()",
                               "wide = x.float() - x.float().mean(-1, keepdim=True)"),
        "batch-first": Mutant("every batch is scaled as the first one is", "wide * scale *", "wide * scale[:1] *"),
        "abs": Mutant("the mean magnitude instead of the root of the mean square", "(wide * wide).sum(-1, "
                      "keepdim=True) / x.shape[-1]", "(wide.abs().sum(-1, keepdim=True) / x.shape[-1]) ** 2"),
        "weight": Mutant("the weight is left out", " * self.weight", ""),
        "epsilon": Mutant("epsilon a hundred times too small", "1e-5", "1e-7", beyond="small"),
    },
)  # fmt: skip
