"""LayerNorm with weight and bias in Triton; some rows are almost constant, so that epsilon counts."""

from tests.backends.contracts import contract, scalar, tensor
from tests.mutants.corpus import Mutant, Original

ROWS, COLUMNS = 8, 200

ORIGINAL = Original(
    kernel_type="triton",
    source="""
import triton
import triton.language as tl

@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + row * n + i, mask=mask, other=0.0)
    mean = tl.sum(x, 0) / n
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / n
    scale = 1.0 / tl.sqrt(variance + eps)
    weight = tl.load(weight_ptr + i, mask=mask)
    bias = tl.load(bias_ptr + i, mask=mask)
    tl.store(out_ptr + row * n + i, centred * scale * weight + bias, mask=mask)
""",
    reference=f"""
class Model(torch.nn.Module):
    def forward(self, x, weight, bias):
        return torch.nn.functional.layer_norm(x, ({COLUMNS},), weight, bias, eps=1e-5)

def get_inputs():
    spread = torch.logspace(-3, 1, {ROWS}).unsqueeze(1)
    return [torch.randn({ROWS}, {COLUMNS}) * spread + 1, torch.rand({COLUMNS}) + 0.5, torch.randn({COLUMNS})]
""",
    io=contract(
        tensor("x", ROWS, COLUMNS), tensor("weight", COLUMNS), tensor("bias", COLUMNS),
        tensor("out", ROWS, COLUMNS, role="output"),
        scalar("n", COLUMNS), scalar("eps", 1e-5), scalar("BLOCK", 256, meta=True), grid=ROWS,
    ),
    atol=1e-3,  # Rows of spread 1e-3 around 1 have lost three digits before they come in.
    rtol=1e-3,
    mutants={
        "mask": Mutant("masked lanes count in the variance", "tl.where(mask, x - mean, 0.0)", "x - mean"),
        "block-mean": Mutant("the mean is over the block, not the row", "tl.sum(x, 0) / n", "tl.sum(x, 0) / BLOCK"),
        "unbiased": Mutant("variance over n - 1: 2.5e-3 off", "tl.sum(centred * centred, 0) / n",
                           "tl.sum(centred * centred, 0) / (n - 1)"),
        "epsilon": Mutant("epsilon ten times too small", "variance + eps", "variance + eps * 0.1"),
        "epsilon-outside": Mutant("epsilon is added to the deviation", "tl.sqrt(variance + eps)",
                                  "(tl.sqrt(variance) + eps)"),
        "weight-row": Mutant("the weight is taken by row", "weight_ptr + i, mask=mask", "weight_ptr + row"),
        "bias-first": Mutant("the bias is scaled by the weight as well", "scale * weight + bias",
                             "scale * weight + bias * weight"),
        "half": Mutant("the mean is rounded to half precision", "tl.sum(x, 0) / n",
                       "(tl.sum(x, 0) / n).to(tl.float16).to(tl.float32)"),
    },
)  # fmt: skip
