"""The k largest of each row with their places, the first of equals first, through one integer key."""

from tests.mutants.corpus import Mutant, Original

ORIGINAL = Original(
    kernel_type="torch",
    source="""
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.shape[-1]
        place = torch.arange(n, device=x.device)
        key = x.long() * n + (n - 1 - place)
        best = torch.topk(key, 8, dim=-1, largest=True, sorted=True).values
        index = n - 1 - torch.remainder(best, n)
        return torch.gather(x, -1, index), index
""",
    # Whole numbers with many ties, up to 9.8e6: exact in float32.
    reference="""
class Model(torch.nn.Module):
    def forward(self, x):
        values, index = torch.sort(x, dim=-1, descending=True, stable=True)
        return values[..., :8], index[..., :8]

def get_inputs():
    return [torch.randint(-50, 50, (12, 500)).float() * 200_000]
""",
    mutants={
        "ties": Mutant("the last of equals comes first", "key = x.long() * n + (n - 1 - place)",
                       "key = x.long() * n + place - (n - 1)"),
        "smallest": Mutant("ordered from the smallest of the best", "return torch.gather",
                           "index = index.flip(-1)\n        return torch.gather"),
        "overflow": Mutant("the key wraps at 32 bits", "x.long() * n + (n - 1 - place)",
                           "(x.long() * n + (n - 1 - place)).int().long()"),
        "magnitude": Mutant("ordered by magnitude", "x.long() * n", "x.long().abs() * n"),
        "short-index": Mutant("places wrap at 8 bits", "torch.remainder(best, n)", "torch.remainder(best, n) % 256"),
        "dtype": Mutant("places are 32-bit", "-1, index), index", "-1, index), index.int()"),
        "last-column": Mutant("the last column is never chosen", "key = x.long()", "x[:, -1].fill_(-1e8)\n        "
                              "key = x.long()"),
        "first-row": Mutant("values are gathered from the first row", "torch.gather(x, -1, index)",
                            "x[0][index]"),
    },
)  # fmt: skip
