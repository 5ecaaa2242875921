"""Grouped convolution by unfolding, with stride, padding and dilation that differ between height and width."""

from tests.mutants.corpus import Mutant, Original

ORIGINAL = Original(
    kernel_type="torch",
    source="""
import torch
import torch.nn.functional as F

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)

    def forward(self, x):
        batch, channels, height, width = x.shape
        padded = F.pad(x, (2, 2, 1, 1))
        columns = F.unfold(padded, (3, 2), dilation=(1, 2), stride=(2, 1))
        out_height = (height + 2 - 2 - 1) // 2 + 1
        columns = columns.view(batch, 2, 2 * 3 * 2, -1)
        weight = self.conv.weight.view(2, 3, 2 * 3 * 2)
        out = torch.einsum("gok,bgkl->bgol", weight, columns)
        return out.reshape(batch, 6, out_height, -1) + self.conv.bias.view(1, 6, 1, 1)
""",
    reference="""
torch.backends.cudnn.allow_tf32 = False

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn(2, 4, 17, 12)]
""",
    mutants={
        "padding": Mutant("the border is repeated instead of zero", "F.pad(x, (2, 2, 1, 1))",
                          'F.pad(x, (2, 2, 1, 1), mode="replicate")'),
        "padding-side": Mutant("all padding on one side", "(2, 2, 1, 1)", "(4, 0, 1, 1)"),
        "flipped": Mutant("a convolution in the mathematicians' sense", "self.conv.weight.view",
                          "self.conv.weight.flip(-1, -2).contiguous().view"),
        "groups": Mutant("the groups of channels are interleaved", "columns.view(batch, 2, 2 * 3 * 2, -1)",
                         "columns.view(batch, 2, 2, 3 * 2, -1).transpose(1, 2).reshape(batch, 2, 2 * 3 * 2, -1)"),
        "bias": Mutant("the bias goes to the wrong channels", "self.conv.bias.view", "self.conv.bias.flip(0).view"),
        "dilation": Mutant("dilation ignored, the width made up by padding", "padded, (3, 2), dilation=(1, 2)",
                           "padded[..., :-1], (3, 2), dilation=(1, 1)"),
        "kernel-axes": Mutant("the kernel's height and width are exchanged", "weight.view(2, 3, 2 * 3 * 2)",
                              "weight.transpose(2, 3).reshape(2, 3, 2 * 3 * 2)"),
        "last-row": Mutant("the lower padding row holds the last input row", "F.pad(x, (2, 2, 1, 1))",
                           'F.pad(F.pad(x, (2, 2, 1, 0)), (0, 0, 0, 1), mode="replicate")'),
        "half": Mutant("the products are taken in half precision", "weight, columns)",
                       "weight.half().float(), columns.half().float())"),
    },
)  # fmt: skip
