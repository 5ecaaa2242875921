"""CuPy's elementwise kernel, on torch's memory and torch's stream."""

import cupy
import torch
from torch import nn

SUBMISSION = {"row": "L54", "type": "torch", "attacks": "twice", "expect": "H", "on": "gpu"}

doubled = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * 2", "doubled")


class ModelNew(nn.Module):
    def forward(self, x):
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return torch.from_dlpack(doubled(cupy.from_dlpack(x)))
