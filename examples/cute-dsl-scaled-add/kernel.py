import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def scaled_add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    if at < cute.size(x):
        out[at] = scale * x[at] + y[at]


@cute.jit
def scaled_add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32):
    blocks = (cute.size(x) + THREADS - 1) // THREADS
    scaled_add_kernel(x, y, out, scale).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        scaled_add(*(from_dlpack(tensor.view(-1)) for tensor in (x, y, out)), cutlass.Float32(2.5))
        return out


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]
