import torch
import triton
import triton.language as tl


@triton.jit
def inverse_rms(x_ptr, scale_ptr, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(scale_ptr + row, 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / columns + epsilon))


@triton.jit
def scale_rows(x_ptr, scale_ptr, weight_ptr, output_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask)
    weight = tl.load(weight_ptr + offsets, mask=mask)
    tl.store(output_ptr + row * columns + offsets, x * tl.load(scale_ptr + row) * weight, mask=mask)


def rms_norm(x, weight):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    scale = torch.empty(rows, device=x.device, dtype=x.dtype)
    output = torch.empty_like(x)
    inverse_rms[(rows,)](x, scale, columns, 1e-6, BLOCK=block)
    scale_rows[(rows,)](x, scale, weight, output, columns, BLOCK=block)
    return output
