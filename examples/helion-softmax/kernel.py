import helion
import helion.language as hl
import torch


# With a configuration of its own: without one, Helion's first call would search for minutes while the job holds the device.
@helion.kernel(config=helion.Config(block_sizes=[4]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        values = x[row, :]
        weights = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[row, :] = weights / torch.sum(weights, dim=1, keepdim=True)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return softmax(x)


def get_inputs():
    return [torch.randn(256, 512)]
